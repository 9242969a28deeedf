//! One sequence: cut into calls, on any threads and instructions, the same bits.

use proptest::prelude::*;

use super::*;

fn any_case() -> impl Strategy<Value = Case> {
    let dims = prop::sample::select(vec![1, 8, 16, 20, 64, 80]);
    let window = prop::option::of(1..200usize);
    let prefix = prop_oneof![Just(0usize), 1..80usize];
    let shape = (1..3usize, 1..4usize, dims, window, 1..260usize, prefix);
    (shape, 0..1000u64).prop_map(|((kv, group, dim, window, rows, prefix), seed)| {
        let heads = heads(kv * group, kv, dim, window);
        Case::new(heads, rows, prefix, 10 * seed)
    })
}

/// Sorted cuts from 0 to `rows`, at the given shares of a thousand.
fn cuts(rows: usize, shares: &[usize], step: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = shares
        .iter()
        .map(|share| share * rows / 1000 / step * step)
        .chain([0, rows])
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_row_has_the_same_bits_in_any_chunk(
        case in any_case(),
        shares in prop::collection::vec(0..1000usize, 0..5),
        threads in 1..4usize,
    ) {
        let plain = Cpu::with_isa(1, Isa::portable()).unwrap();
        let (out, sums) = case.forward(&plain, 0, case.rows);
        let (width, heads) = (case.heads.width(), case.heads.heads);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let mut cuts = cuts(case.rows, &shares, 1);
            // Decode: the last row, and another, alone.
            cuts.extend([case.rows - 1, case.rows / 2]);
            cuts.sort_unstable();
            cuts.dedup();
            for pair in cuts.windows(2) {
                let (part, part_sums) = case.forward(&cpu, pair[0], pair[1]);
                let cells = pair[0] * width..pair[1] * width;
                prop_assert!(bits(&part) == bits(&out[cells]), "{isa} rows {pair:?}");
                let cells = pair[0] * heads..pair[1] * heads;
                prop_assert!(bits(&part_sums) == bits(&sums[cells]), "{isa} sums {pair:?}");
            }
        }
    }

    #[test]
    fn gradients_have_the_same_bits_from_any_chunks(
        case in any_case(),
        shares in prop::collection::vec(0..1000usize, 0..5),
        threads in 1..9usize,
    ) {
        let plain = Cpu::with_isa(1, Isa::portable()).unwrap();
        let whole = case.backward(&plain, &[0, case.rows]).bits();
        let cuts = cuts(case.rows, &shares, TILE);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let chunked = case.backward(&cpu, &cuts).bits();
            for (which, (a, b)) in whole.iter().zip(&chunked).enumerate() {
                prop_assert!(a == b, "{isa} gradient {which}, cuts {cuts:?}");
            }
        }
    }
}

#[test]
fn a_row_decoded_far_out_has_the_bits_of_a_long_chunk() {
    let cpu = Cpu::new(2).unwrap();
    for window in [None, Some(500)] {
        let case = Case::new(heads(2, 1, 16, window), 3000, 5, 3);
        let (out, _) = case.forward(&cpu, 0, 3000);
        let width = case.heads.width();
        for row in [63, 64, 1000, 2559, 2560, 2999] {
            let (one, _) = case.forward(&cpu, row, row + 1);
            assert!(
                bits(&one) == bits(&out[row * width..][..width]),
                "row {row}"
            );
        }
    }
}

#[test]
fn tiny_numbers_keep_the_sign_of_their_zeros() {
    // Products that vanish: a zero's sign would tell which hidden keys were added.
    let mut case = Case::new(heads(2, 1, 8, None), 100, 0, 5);
    case.values.iter_mut().for_each(|x| *x *= -1e-45);
    case.d_out.iter_mut().for_each(|x| *x *= -1e-38);
    let cpu = Cpu::new(1).unwrap();
    let (out, _) = case.forward(&cpu, 0, 100);
    let width = case.heads.width();
    for row in 0..100 {
        let (one, _) = case.forward(&cpu, row, row + 1);
        assert!(
            bits(&one) == bits(&out[row * width..][..width]),
            "row {row}"
        );
    }
    let whole = case.backward(&cpu, &[0, 100]).bits();
    assert!(whole == case.backward(&cpu, &[0, 64, 100]).bits());
}

#[test]
#[should_panic(expected = "cut at multiples of 64")]
fn backward_from_the_middle_of_a_tile_panics() {
    let case = Case::new(heads(1, 1, 8, None), 100, 0, 5);
    case.backward(&Cpu::new(1).unwrap(), &[10, 100]);
}
