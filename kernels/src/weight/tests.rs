#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn shared(bytes: Vec<u8>) -> SharedBytes {
    Arc::new(bytes)
}

/// 4-aligned bytes.
fn aligned(len: usize) -> SharedBytes {
    Arc::new(Owned(vec![0.0f32; len.div_ceil(4)]))
}

#[test]
fn numbers_come_back() {
    let values: Vec<f32> = (0..6u8).map(f32::from).collect();
    let weight = Weight::from_f32(2, 3, values.clone());
    assert_eq!((weight.rows(), weight.cols()), (2, 3));
    assert_eq!(weight.to_f32(), values);
    assert_eq!(weight.as_f32().unwrap(), values);
    let mut row = [0.0; 3];
    weight.row(1, &mut row);
    assert_eq!(row, [3.0, 4.0, 5.0]);
}

#[test]
fn a_range_of_a_file_is_read_in_place() {
    let mut bytes = vec![7u8; 3];
    for x in [1.0f32, -2.0, 0.5, 3.0] {
        bytes.extend(bf16::from_f32(x).to_le_bytes());
    }
    let weight = Weight::new(Format::Bf16, 2, 2, shared(bytes), 3..11).unwrap();
    assert_eq!(weight.to_f32(), [1.0, -2.0, 0.5, 3.0]);
    assert_eq!(weight.byte_len(), 8);
}

#[test]
fn misfits_are_refused_with_what_to_do() {
    let new = |format, rows, cols, range| {
        Weight::new(format, rows, cols, aligned(4096), range).unwrap_err()
    };
    let error = new(Format::Q4_0, 2, 33, 0..36);
    assert_eq!(
        error,
        WeightError::Blocks {
            cols: 33,
            format: Format::Q4_0
        }
    );
    let error = new(Format::F32, 2, 3, 0..20);
    assert!(matches!(
        error,
        WeightError::Length {
            wanted: 24,
            found: 20,
            ..
        }
    ));
    let error = new(Format::F32, 2, 3, 4090..4114);
    assert!(matches!(
        error,
        WeightError::Range {
            available: 4096,
            ..
        }
    ));
    let error = new(Format::F32, 2, 3, 2..26);
    assert_eq!(error, WeightError::Misaligned { start: 2 });
    let error = new(Format::F32, usize::MAX, 2, 0..4);
    assert!(matches!(error, WeightError::Size { .. }));
    let error = new(Format::F32, 0, 2, 0..0);
    assert!(
        error.to_string().contains("dimensions from 1 on"),
        "{error}"
    );
    #[expect(clippy::reversed_empty_ranges, reason = "a lying header")]
    let reversed = 8..4;
    assert!(matches!(
        new(Format::F32, 1, 1, reversed),
        WeightError::Range { .. }
    ));
}

#[test]
fn conversion_rounds_to_bf16_and_back() {
    let weight = Weight::from_f32(1, 2, vec![1.0, 1.004]);
    let narrow = weight.convert(Format::Bf16).unwrap();
    assert_eq!(narrow.byte_len(), 4);
    assert_eq!(narrow.to_f32(), [1.0, 1.007_812_5]);
    let wide = narrow.convert(Format::F32).unwrap();
    assert_eq!(wide.to_f32(), narrow.to_f32());
    assert!(weight.convert(Format::Q8_0).is_err());
}

#[test]
fn non_finite_numbers_are_found_in_every_format() {
    let cpu = Cpu::new(2).unwrap();
    for format in Format::ALL {
        let len = format.bytes_of(3 * 64).unwrap();
        let clean = Weight::new(format, 3, 64, aligned(len), 0..len).unwrap();
        assert!(clean.all_finite(&cpu), "{format}");
        // The last number or scale of the last row: exponent all ones.
        let mut bytes = vec![0f32; len / 4];
        let at = len - format.block_bytes();
        let high = match format {
            Format::F32 => at + 3,
            Format::Q4_1 => at + 3,
            _ => at + 1,
        };
        let raw: &mut [u8] = bytemuck::cast_slice_mut(&mut bytes);
        raw[high] = 0x7f;
        raw[high - 1] = 0xff;
        let weight = Weight::new(format, 3, 64, Arc::new(Owned(bytes)), 0..len).unwrap();
        assert!(!weight.all_finite(&cpu), "{format}");
    }
}
