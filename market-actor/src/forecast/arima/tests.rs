//! Figures to compare with are those of statsmodels 0.15.0, `SARIMAX(.., concentrate_scale=True)`, on the same series.

use super::*;

/// ARMA(2, 1) about 3 with uniform errors from a linear congruential generator.
fn series() -> Vec<f64> {
    let mut state: u64 = 12_345;
    let mut draw = || {
        state = (1_103_515_245 * state + 12_345) % (1 << 31);
        state as f64 / f64::from(1u32 << 31) - 0.5
    };
    let errors: Vec<f64> = (0..202).map(|_| draw()).collect();
    let mut values: Vec<f64> = Vec::new();
    for at in 0..200usize {
        let before = |back: usize| at.checked_sub(back).map_or(0.0, |i| values[i]);
        let value = 0.6 * before(1) + 0.2 * before(2) + errors[at + 2] + 0.4 * errors[at + 1];
        values.push(value);
    }
    values.iter().map(|value| value + 3.0).collect()
}

fn near(a: f64, b: f64, by: f64) -> bool {
    (a - b).abs() <= by
}

#[test]
fn the_likelihood_is_the_exact_one() {
    let cases: [(&[f64], &[f64], f64, f64); 4] = [
        (
            &[0.6, 0.2],
            &[0.4],
            -38.785_003_171_761_886,
            0.085_663_360_603_956_53,
        ),
        (
            &[0.8],
            &[],
            -42.723_529_811_487_48,
            0.089_300_336_355_115_96,
        ),
        (
            &[],
            &[0.9, 0.5],
            -60.793_558_636_471_63,
            0.106_986_808_578_186_61,
        ),
        (
            &[0.5, 0.2, 0.1],
            &[0.4, -0.2],
            -45.679_223_998_184_256,
            0.091_827_778_194_530_53,
        ),
    ];
    for (phi, theta, log, variance) in cases {
        let arma = Arma {
            phi: phi.to_vec(),
            theta: theta.to_vec(),
            mean: 3.0,
        };
        let found = arma.likelihood(&series()).unwrap();
        assert!(near(found.log, log, 1e-6), "{phi:?} {theta:?}: {found:?}");
        assert!(
            near(found.variance, variance, 1e-8),
            "{phi:?} {theta:?}: {found:?}"
        );
    }
}

#[test]
fn forecasts_are_those_of_the_filter() {
    let arma = Arma {
        phi: vec![0.6, 0.2],
        theta: vec![0.4],
        mean: 3.0,
    };
    let series = series();
    let ahead = arma.ahead(&series, &arma.errors(&series), 3);
    for (found, expected) in ahead.iter().zip([3.568_571_58, 3.465_630_83, 3.393_092_81]) {
        assert!(near(*found, expected, 1e-7), "{ahead:?}");
    }
}

#[test]
fn the_orders_are_those_of_the_least_aicc() {
    let fit = Arima::default().fit(&series());
    assert_eq!((fit.arma.phi.len(), fit.d, fit.arma.theta.len()), (1, 0, 1));
    assert!(near(fit.log_likelihood, -38.331_964, 1e-3), "{fit:?}");
    assert!(near(fit.aicc, 84.869_057, 2e-3), "{fit:?}");
    assert!(near(fit.arma.phi[0], 0.782_210_9, 0.01), "{fit:?}");
    assert!(near(fit.arma.theta[0], 0.229_567_2, 0.01), "{fit:?}");
    assert!(
        near(fit.arma.mean, 0.656_931_41 / (1.0 - 0.782_210_91), 0.02),
        "{fit:?}"
    );
    let path = paths(&fit, &series(), &[200], 3).remove(0);
    for (found, expected) in path.iter().zip([3.550_228_74, 3.433_959_08, 3.343_012_68]) {
        assert!(near(*found, expected, 5e-3), "{path:?}");
    }
}

#[test]
fn kpss_tells_a_walk_from_what_is_stationary() {
    let series = series();
    assert!(near(kpss(&series), 0.250_777_781_452_650_7, 1e-9));
    let mut sum = 0.0;
    let walk: Vec<f64> = series
        .iter()
        .map(|value| {
            sum += value - 3.0;
            sum
        })
        .collect();
    assert!(near(kpss(&walk), 0.974_811_869_959_027_2, 1e-9));
    assert_eq!(Arima::default().fit(&walk).d, 1);
    assert_eq!(kpss(&[5.0; 40]), 0.0);
}

#[test]
fn what_has_no_variance_or_is_short_stays() {
    let flat = Arima::default().paths(&[5.0; 40], 40, &[40], 2);
    assert_eq!(flat, [[5.0, 5.0]]);
    let short = Arima::default().paths(&[1.0, 2.0, 4.0], 3, &[1, 3], 2);
    assert_eq!(short, [[1.0, 1.0], [4.0, 4.0]]);
    assert_eq!(Arma::noise(5.0).likelihood(&[5.0; 40]), None);
}

#[test]
fn differences_are_summed_up() {
    let twice = Fit {
        d: 2,
        arma: Arma::noise(0.0),
        log_likelihood: 0.0,
        aicc: 0.0,
    };
    let path = paths(&twice, &[1.0, 3.0, 6.0, 10.0], &[1, 2, 4], 3);
    assert_eq!(path, [[1.0, 1.0, 1.0], [3.0, 3.0, 3.0], [14.0, 18.0, 22.0]]);
}

#[test]
fn a_process_that_is_not_stationary_has_no_likelihood() {
    let arma = Arma {
        phi: vec![1.02],
        theta: vec![],
        mean: 0.0,
    };
    assert_eq!(arma.likelihood(&series()), None);
}
