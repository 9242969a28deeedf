use super::*;
use crate::testing::weight;
use crate::weight::Format;

#[test]
fn panels_hold_the_numbers_of_the_weight() {
    for format in Format::ALL {
        let (rows_of_w, cols) = (75, 320);
        let w = weight(format, rows_of_w, cols, 1);
        let values = w.to_f32();
        for isa in Isa::available() {
            for (outputs, inputs) in [
                (0..75, 0..320),
                (32..64, 64..256),
                (3..41, 32..96),
                (7..8, 0..32),
            ] {
                let (height, depth) = (outputs.len(), inputs.len());
                let at = |o: usize, i: usize| {
                    values[(outputs.start + o) * cols + inputs.start + i].to_bits()
                };
                let mut found = vec![f32::NAN; height.div_ceil(PANEL) * PANEL * depth];
                transposed(isa, &w, outputs.clone(), inputs.clone(), &mut found);
                for (place, x) in found.iter().enumerate() {
                    let (k, o) = (
                        place / PANEL % depth,
                        place / (PANEL * depth) * PANEL + place % PANEL,
                    );
                    let wanted = if o < height { at(o, k) } else { 0 };
                    assert_eq!(
                        x.to_bits(),
                        wanted,
                        "{format} {isa} transposed {outputs:?} {inputs:?} {o} {k}"
                    );
                }
                let mut found = vec![f32::NAN; depth.div_ceil(PANEL) * PANEL * height];
                rows(isa, &w, outputs.clone(), inputs.clone(), &mut found);
                for (place, x) in found.iter().enumerate() {
                    let (k, i) = (
                        place / PANEL % height,
                        place / (PANEL * height) * PANEL + place % PANEL,
                    );
                    let wanted = if i < depth { at(k, i) } else { 0 };
                    assert_eq!(
                        x.to_bits(),
                        wanted,
                        "{format} {isa} rows {outputs:?} {inputs:?} {k} {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn widths_that_are_no_multiple_of_anything() {
    let w = weight(Format::Bf16, 5, 37, 2);
    let values = w.to_f32();
    for isa in Isa::available() {
        let mut found = vec![f32::NAN; 37 * PANEL];
        transposed(isa, &w, 0..5, 0..37, &mut found);
        assert_eq!(
            found[36 * PANEL + 4].to_bits(),
            values[4 * 37 + 36].to_bits()
        );
        assert_eq!(found[36 * PANEL + 5], 0.0);
        let mut found = vec![f32::NAN; 2 * 5 * PANEL];
        rows(isa, &w, 0..5, 0..37, &mut found);
        assert_eq!(
            found[(5 + 4) * PANEL + 4].to_bits(),
            values[4 * 37 + 36].to_bits()
        );
        assert_eq!(found[(5 + 4) * PANEL + 5], 0.0);
    }
}

#[test]
#[should_panic(expected = "cut a block")]
fn cutting_a_block_panics() {
    let w = weight(Format::Q8_0, 4, 64, 3);
    rows(Isa::best(), &w, 0..4, 0..16, &mut [0.0; 4 * PANEL]);
}
