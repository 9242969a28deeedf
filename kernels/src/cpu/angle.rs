//! Sines and cosines in `f64` that are the same bits on every machine, for tables of rotary positions.
//!
//! The platform's library rounds differently from version to version and processor to processor; a job that moves
//! between machines would notice. Reduction by multiples of pi / 2 in two parts with fused multiply-add, then the
//! polynomials of fdlibm.

/// Returns (sin x, cos x) for |x| up to about 10^8; absolute error below 4e-16.
pub(crate) fn sin_cos(x: f64) -> (f64, f64) {
    // pi / 2 as the nearest f64 and what it misses.
    const HIGH: f64 = std::f64::consts::FRAC_PI_2;
    const LOW: f64 = 6.123_233_995_736_766e-17;
    let turns = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let rest = turns.mul_add(-LOW, turns.mul_add(-HIGH, x));
    let (sine, cosine) = (sine(rest), cosine(rest));
    match turns.rem_euclid(4.0) {
        1.0 => (cosine, -sine),
        2.0 => (-sine, -cosine),
        3.0 => (-cosine, sine),
        _ => (sine, cosine),
    }
}

/// Returns sin x for |x| <= pi / 4.
fn sine(x: f64) -> f64 {
    let s = x * x;
    let p = 1.589_690_995_211_55e-10_f64
        .mul_add(s, -2.505_076_025_340_686_3e-8)
        .mul_add(s, 2.755_731_370_707_006_8e-6)
        .mul_add(s, -1.984_126_982_985_795e-4)
        .mul_add(s, 8.333_333_333_322_49e-3)
        .mul_add(s, -1.666_666_666_666_663_2e-1);
    (p * s).mul_add(x, x)
}

/// Returns cos x for |x| <= pi / 4.
fn cosine(x: f64) -> f64 {
    let s = x * x;
    let p = (-1.135_964_755_778_819_5e-11_f64)
        .mul_add(s, 2.087_572_321_298_175e-9)
        .mul_add(s, -2.755_731_435_139_066_3e-7)
        .mul_add(s, 2.480_158_728_947_673e-5)
        .mul_add(s, -1.388_888_888_887_411e-3)
        .mul_add(s, 4.166_666_666_666_66e-2);
    let half = 0.5 * s;
    let whole = 1.0 - half;
    // What rounding took from 1 - half is added back with the rest.
    whole + (p * s).mul_add(s, (1.0 - whole) - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_library() {
        for step in 0..40_000u32 {
            for scale in [1e-4, 0.037, 3.3, 1_000.7] {
                let x = f64::from(step) * scale;
                let (sine, cosine) = sin_cos(x);
                assert!((sine - x.sin()).abs() < 4e-16, "sin {x}: {sine}");
                assert!((cosine - x.cos()).abs() < 4e-16, "cos {x}: {cosine}");
            }
        }
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
    }
}
