//! Several sequences in a call: none sees another.

use proptest::prelude::*;

use super::*;

/// Rows that meet the same keys where a pair of tiles is seen in part.
const STRIP: usize = 16;

/// Results of one sequence.
#[derive(Clone, Debug, PartialEq)]
struct Results {
    out: Vec<u32>,
    sums: Vec<u32>,
    gradients: [Vec<u32>; 5],
}

/// Rows of a call for these sequences, with a gap before each.
fn places(cases: &[Case], gap: usize) -> Vec<Range<usize>> {
    let mut end = 0;
    let mut place = |case: &Case| {
        let start = end + gap;
        end = start + case.rows;
        start..end
    };
    cases.iter().map(&mut place).collect()
}

/// Puts rows of each sequence in their places; what lies between is NaN.
fn laid(cases: &[Case], places: &[Range<usize>], pick: fn(&Case) -> &Vec<f32>) -> Vec<f32> {
    let width = cases[0].heads.width();
    let mut all = vec![f32::NAN; places.last().unwrap().end * width];
    for (case, place) in cases.iter().zip(places) {
        all[place.start * width..place.end * width].copy_from_slice(pick(case));
    }
    all
}

/// Computes all sequences in one call forward and one backward.
fn together(cpu: &Cpu, cases: &[Case], gap: usize) -> Vec<Results> {
    let heads = cases[0].heads;
    let (width, places) = (heads.width(), places(cases, gap));
    let rows = places.last().unwrap().end;
    let sequences: Vec<_> = cases
        .iter()
        .zip(&places)
        .map(|(case, place)| case.sequence(place.clone(), 0))
        .collect();
    let (q, d_out) = (
        laid(cases, &places, |case| &case.q),
        laid(cases, &places, |case| &case.d_out),
    );
    let (mut out, mut sums) = (vec![7.0; rows * width], vec![7.0; rows * heads.heads]);
    forward(cpu, heads, &sequences, &q, &mut out, &mut sums);
    let mut rooms: Vec<Gradients> = cases.iter().map(Case::room).collect();
    let mut gradients = rooms
        .iter_mut()
        .zip(cases)
        .map(gradient)
        .collect::<Vec<_>>();
    let mut dq = vec![7.0; rows * width];
    backward(
        cpu,
        heads,
        &sequences,
        &mut gradients,
        &q,
        &out,
        &sums,
        &d_out,
        &mut dq,
    );
    if gap > 0 {
        for untouched in [&out[..gap * width], &dq[..gap * width]] {
            assert!(untouched.iter().all(|&x| x == 7.0));
        }
    }
    let results = rooms.into_iter().zip(&places).map(|(mut room, place)| {
        let cells = place.start * width..place.end * width;
        room.q.copy_from_slice(&dq[cells.clone()]);
        Results {
            out: bits(&out[cells]),
            sums: bits(&sums[place.start * heads.heads..place.end * heads.heads]),
            gradients: room.bits(),
        }
    });
    results.collect()
}

fn gradient<'a>((room, case): (&'a mut Gradients, &Case)) -> SequenceGradient<'a> {
    let prefix = (!case.prefix_keys.is_empty()).then_some(PrefixGradient {
        dkeys: &mut room.prefix_keys,
        dvalues: &mut room.prefix_values,
    });
    SequenceGradient {
        dkeys: &mut room.keys,
        dvalues: &mut room.values,
        prefix,
    }
}

fn any_cases() -> impl Strategy<Value = Vec<Case>> {
    let dims = prop::sample::select(vec![8, 16, 64]);
    let window = prop::option::of(1..150usize);
    let sizes = prop::collection::vec((0..200usize, 0..3usize), 2..5);
    let shape = (1..3usize, 1..3usize, dims, window, sizes);
    (shape, 0..1000u64).prop_map(|((kv, group, dim, window, sizes), seed)| {
        let heads = heads(kv * group, kv, dim, window);
        let case = |(i, (rows, prefix))| Case::new(heads, rows, 33 * prefix, seed * 100 + 10 * i);
        (0u64..).zip(sizes).map(case).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_sequence_has_the_same_bits_in_any_company(
        cases in any_cases(),
        gap in 0..3usize,
        threads in 1..4usize,
    ) {
        let cpu = Cpu::new(threads).unwrap();
        let plain = Cpu::with_isa(1, Isa::portable()).unwrap();
        let all = together(&cpu, &cases, gap);
        for (case, got) in cases.iter().zip(all) {
            let alone = together(&plain, std::slice::from_ref(case), 0);
            prop_assert!(alone[0] == got, "{:?} {} rows", case.heads, case.rows);
        }
    }

    #[test]
    fn a_broken_sequence_does_not_touch_its_neighbours(
        mut cases in any_cases(),
        which in 0..4usize,
        poison in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]),
        threads in 1..4usize,
    ) {
        let cpu = Cpu::new(threads).unwrap();
        let before = together(&cpu, &cases, 1);
        let broken = which % cases.len();
        let case = &mut cases[broken];
        for values in [
            &mut case.q,
            &mut case.keys,
            &mut case.values,
            &mut case.prefix_keys,
            &mut case.prefix_values,
            &mut case.d_out,
        ] {
            values.fill(poison);
        }
        let after = together(&cpu, &cases, 1);
        // What the broken one left in buffers does not show afterwards either.
        let case = cases[(broken + 1) % cases.len()].clone();
        let once_more = together(&cpu, &[case], 1);
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            if index != broken {
                prop_assert!(before == after, "sequence {index} beside {broken}");
            }
        }
        prop_assert!(once_more[0] == before[(broken + 1) % cases.len()]);
    }

    /// What is no number reaches the rows that see it, and of the others at most those of their strips.
    #[test]
    fn a_broken_row_reaches_no_strip_that_does_not_see_it(
        case in any_cases().prop_map(|mut cases| cases.remove(0)),
        which in 0..200usize,
        poison in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
    ) {
        prop_assume!(case.rows > 0);
        let cpu = Cpu::new(1).unwrap();
        let (width, kv) = (case.heads.width(), case.heads.kv_width());
        let window = case.heads.window.unwrap_or(case.rows);
        let row = which % case.rows;
        let before = together(&cpu, std::slice::from_ref(&case), 0).remove(0);
        let mut broken = case.clone();
        broken.values[row * kv..][..kv].fill(poison);
        let after = together(&cpu, &[broken], 0).remove(0);
        for at in 0..case.rows {
            let cells = at * width..(at + 1) * width;
            let strip = at / STRIP * STRIP..(at / STRIP + 1) * STRIP;
            if (at.saturating_sub(window - 1)..=at).contains(&row) {
                let sees = after.out[cells].iter().any(|&x| !f32::from_bits(x).is_finite());
                prop_assert!(sees, "row {at} sees row {row}");
            } else if strip.end <= row || row + window <= strip.start {
                prop_assert!(before.out[cells.clone()] == after.out[cells], "row {at} of {row}");
            }
        }
        let mut broken = case.clone();
        broken.d_out[row * width..][..width].fill(poison);
        let after = together(&cpu, &[broken], 0).remove(0);
        for at in 0..case.rows {
            let strip = at / STRIP * STRIP..(at / STRIP + 1) * STRIP;
            let cells = at * kv..(at + 1) * kv;
            if row < strip.start || strip.end - 1 + window <= row {
                for gradient in 1..3 {
                    let of = |results: &Results| results.gradients[gradient][cells.clone()].to_vec();
                    prop_assert!(of(&before) == of(&after), "key {at} of row {row}");
                }
            }
            let cells = at * width..(at + 1) * width;
            let own = before.gradients[0][cells.clone()] != after.gradients[0][cells];
            prop_assert!(at == row || !own, "query {at} beside row {row}");
        }
    }
}
