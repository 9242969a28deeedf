#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::cpu::tiles::Tiles;
use crate::reference::split as reference;
use crate::testing::numbers;

/// Bits of a number, all that is not a number alike.
fn class(x: f32) -> u32 {
    if x.is_nan() {
        f32::NAN.to_bits()
    } else {
        x.to_bits()
    }
}

/// A generator of words.
fn words(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A bf16 of a kind: any bits, near the smallest, near the largest, plain, or special.
fn extreme(word: u64) -> u16 {
    let bits = (word >> 32) as u16;
    let with = |exponent: u16| bits & 0x807f | exponent << 7;
    match word % 16 {
        0 => bits,
        1 => with((word >> 8 & 3) as u16),
        2..=5 => with(52 + (word >> 8 & 31) as u16),
        6 => with(250 + (word >> 8 & 3) as u16),
        7 => bits & 0x8000,
        8 if word >> 8 & 15 == 0 => bits & 0x8000 | 0x7f80,
        9 if word >> 8 & 15 == 0 => bits | 0x7fc0,
        _ => with(120 + (word >> 8 & 7) as u16),
    }
}

fn number(bf16: u16) -> f32 {
    f32::from_bits(u32::from(bf16) << 16)
}

/// The instruction of this processor does what the reference says, for whatever bits.
#[test]
fn the_instruction_is_that_of_the_manual() {
    let Some(tiles) = Tiles::detect() else {
        eprintln!("NOT RUN: this processor has no tiles of bf16");
        return;
    };
    let (mut special, mut flushed) = (0u32, 0u32);
    for round in 0..3000u64 {
        let mut next = words(round + 1);
        // Whole tiles of tiny numbers bring sums around 2^-126; others mix all kinds.
        let mut bf16 = || match round % 3 {
            0 => {
                let word = next();
                (word >> 32) as u16 & 0x807f | (60 + (word & 7) as u16) << 7
            }
            1 => extreme(next()),
            _ => {
                let word = next();
                if word % 7 < 5 {
                    0
                } else {
                    (word >> 32) as u16 & 0x80ff | 64 << 7
                }
            }
        };
        let mut tile = || -> [u32; 256] {
            std::array::from_fn(|_| u32::from(bf16()) | u32::from(bf16()) << 16)
        };
        let (a, b) = (tile(), tile());
        let mut next = words(round + 77);
        let start: [f32; 256] = std::array::from_fn(|_| {
            let word = next();
            match round % 3 {
                1 => f32::from_bits(word as u32),
                _ => f32::from_bits(word as u32 & 0x8fff_ffff),
            }
        });
        let mut found = start;
        tiles.once(&a, &b, &mut found);
        for (place, found) in found.into_iter().enumerate() {
            let (row, column) = (place / 16, place % 16);
            let of = |word: u32, k: usize| number((word >> (k % 2 * 16)) as u16);
            let left: Vec<f32> = (0..32).map(|k| of(a[row * 16 + k / 2], k)).collect();
            let right: Vec<f32> = (0..32).map(|k| of(b[k / 2 * 16 + column], k)).collect();
            let wanted = reference::step(start[place], &left, &right);
            assert_eq!(
                class(found),
                class(wanted),
                "{round} {place}: {found:e}, not {wanted:e}, from {:e} {left:?} {right:?}",
                start[place]
            );
            special += u32::from(!wanted.is_finite());
            flushed += u32::from(wanted.to_bits() << 1 == 0);
        }
    }
    assert!(special > 1000 && flushed > 1000, "{special} {flushed}");
}

/// The one case in which rounding to multiples of 2^-149 and to 24 bits disagree on what is small.
#[test]
fn what_is_small_is_decided_with_24_bits() {
    let least = f32::MIN_POSITIVE;
    // 2^-126 minus a little: 2^-151 or less away it rounds up.
    let c = least;
    for (factor, wanted) in [(-151, least), (-152, least), (-150, 0.0), (-200, least)] {
        let half = factor / 2;
        let (a, b) = (2f32.powi(half), -(2f32.powi(factor - half)));
        assert_eq!(reference::multiply_add(a, b, c), wanted, "{factor}");
    }
    // 1.0078125 * 2^-151 is more than half a place.
    let (a, b) = (2f32.powi(-75) * 1.007_812_5, -(2f32.powi(-76)));
    assert_eq!(reference::multiply_add(a, b, c).to_bits(), 0);
    assert_eq!(a.mul_add(b, c), least);
    assert_eq!(reference::multiply_add(a, -b, -c).to_bits(), 1 << 31);
}

#[test]
fn pieces_are_the_whole_number() {
    let mut next = words(5);
    let special = [
        f32::MAX,
        f32::MIN,
        0.0,
        -0.0,
        1.0,
        f32::MIN_POSITIVE,
        1e-45,
        -3.4e38,
    ];
    let random = std::iter::repeat_with(|| f32::from_bits(next() as u32)).take(100_000);
    for x in special.into_iter().chain(random).filter(|x| x.is_finite()) {
        let pieces = reference::pieces(x);
        let sum: f64 = pieces.iter().copied().map(f64::from).sum();
        assert_eq!(
            sum.to_bits() & !(1 << 63),
            f64::from(x).to_bits() & !(1 << 63),
            "{x:e}"
        );
        for piece in pieces {
            assert!(
                piece.is_finite() && (piece.to_bits() & 0xffff == 0 || !piece.is_normal()),
                "{x:e}: {pieces:?}"
            );
        }
        let fast = super::pieces(&[x; SIDE]);
        for (fast, piece) in fast.iter().zip(pieces) {
            assert_eq!(fast[3], piece.to_bits(), "{x:e}");
        }
    }
}

/// Runs a product of `x (m, k)` and `w (k, n)` into a wider matrix.
fn multiplied(isa: Isa, x: &[f32], k: usize, w: &[f32], c: &mut [f32], width: usize, more: bool) {
    let n = w.len() / k;
    let mut left = vec![u32::MAX; left_words(x.len() / k, k)];
    let mut right = vec![u32::MAX; right_words(k, n)];
    let cpu = Cpu::with_isa(1, isa).unwrap();
    let left = Left::new(&cpu, x, k, 0..k, &mut left);
    pack_right(isa, w, n, k, n, &mut right);
    let c = DisjointMut::matrix(c, width);
    product(
        isa,
        left,
        &right,
        &mut c.tile(0..x.len() / k, 1..n + 1),
        more,
    );
}

/// Numbers over many magnitudes.
fn wild(len: usize, seed: u64, least: u64) -> Vec<f32> {
    let mut next = words(seed + 3);
    let of = |word: u64| {
        let exponent = (least + word % (150 - least)) as u32;
        f32::from_bits((word >> 32) as u32 & 0x807f_ffff | exponent << 23)
    };
    std::iter::repeat_with(|| of(next())).take(len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_set_gives_the_bits_of_the_reference(
        m in 1usize..70, n in 1usize..70, k in 1usize..100, more: bool, kind in 0u64..4, seed: u64,
    ) {
        // Ordinary numbers, many magnitudes, and so small that products vanish.
        let make = |len, seed| match kind {
            0 | 1 => numbers(len, seed),
            2 => wild(len, seed, 90),
            _ => wild(len, seed, 0),
        };
        let (x, w) = (make(m * k, seed >> 1), make(k * n, (seed >> 1) + 1));
        let width = n + 2;
        let start = make(m * width, (seed >> 1) + 2);
        let column = |j: usize| -> Vec<f32> { (0..k).map(|s| w[s * n + j]).collect() };
        let columns: Vec<Vec<f32>> = (0..n).map(column).collect();
        let mut wanted = start.clone();
        for i in 0..m {
            for j in 0..n {
                let from = if more { start[i * width + j + 1] } else { 0.0 };
                wanted[i * width + j + 1] = reference::dot(from, &x[i * k..][..k], &columns[j]);
            }
        }
        for isa in Isa::available() {
            let mut c = start.clone();
            multiplied(isa, &x, k, &w, &mut c, width, more);
            for (place, (found, wanted)) in c.iter().zip(&wanted).enumerate() {
                prop_assert_eq!(class(*found), class(*wanted), "{} {} {:e} {:e}", isa, place, found, wanted);
            }
        }
    }
}

#[test]
fn rows_that_are_not_finite_are_named_and_become_zeros() {
    let (m, k) = (70, 45);
    let mut x = numbers(m * k, 3);
    x[5 * k + 7] = f32::INFINITY;
    x[33 * k + 44] = f32::NAN;
    x[69 * k] = f32::from_bits(0xffff_ffff);
    let w = numbers(k, 4);
    for isa in Isa::available() {
        let mut space = vec![0; left_words(m, k)];
        let left = Left::alone(isa, &x, k, m, k, &mut space);
        assert_eq!(left.odd_rows().collect::<Vec<_>>(), [5, 33, 69], "{isa}");
        let mut c = vec![1.0; m * 3];
        multiplied(isa, &x, k, &w, &mut c, 3, true);
        for row in 0..m {
            let kept = c[row * 3 + 1] == 1.0;
            assert_eq!(kept, [5, 33, 69].contains(&row), "{isa} {row}");
        }
    }
}

/// A column that is not finite stays one, and alone.
#[test]
fn columns_that_are_not_finite_stay_so() {
    let (m, k, n) = (20, 40, 35);
    for bad in [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::from_bits(0x7f80_0001),
    ] {
        let mut w = numbers(k * n, 3);
        w[11 * n + 34] = bad;
        let mut x = numbers(m * k, 4);
        x[3 * k + 11] = 0.0;
        for isa in Isa::available() {
            let mut c = vec![0.0; m * (n + 2)];
            multiplied(isa, &x, k, &w, &mut c, n + 2, false);
            for (place, c) in c.iter().enumerate() {
                assert_eq!(c.is_finite(), place % (n + 2) != 35, "{isa} {place} {bad}");
            }
        }
    }
}
