//! What was measured of one number of jobs, for programs and for people.

use gpu_actor::stage::timing::{Operator, Timings};
use serde::Serialize;

use super::products::Seconds;
use crate::render::{self, Align, Table};

/// What was measured of one number of jobs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) event: &'static str,
    pub(crate) jobs: usize,
    pub(crate) rounds: u64,
    pub(crate) tokens: u64,
    pub(crate) seconds: f64,
    pub(crate) tokens_per_second: f64,
    /// Rows computed that are no data: pads.
    pub(crate) wasted_rows: u64,
    pub(crate) cpu_ms_per_token: Option<f64>,
    /// At the end.
    pub(crate) pss_bytes: Option<u64>,
    pub(crate) anonymous_bytes: Option<u64>,
    /// The largest of samples while it trained.
    pub(crate) peak_pss_bytes: Option<u64>,
    pub(crate) job_bytes: u64,
    pub(crate) job_bytes_over_16_a_value: f64,
    pub(crate) anonymous_bytes_of_one_more_job: Option<f64>,
    /// Until the job is on the backbone, the others being there.
    pub(crate) admission_of_one_more_job_seconds: f64,
    /// The same and its first step, the others resting.
    pub(crate) start_of_one_more_job_seconds: f64,
    pub(crate) operators: Vec<Share>,
    #[serde(flatten)]
    pub(crate) products: Option<OverProducts>,
}

/// How much of the time went to one kind of operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    pub(crate) operator: &'static str,
    pub(crate) ms_per_token: f64,
    pub(crate) share: f64,
}

/// Shares of some seconds by kind of operator; what no operator took is `other`.
pub(crate) fn shares(timings: &Timings, seconds: f64, tokens: u64) -> Vec<Share> {
    let share = |operator, part: f64| Share {
        operator,
        ms_per_token: 1e3 * part / tokens as f64,
        share: part / seconds,
    };
    let other = (seconds - timings.total().as_secs_f64()).max(0.0);
    let timed = Operator::ALL
        .iter()
        .map(|&operator| share(operator.name(), timings.of(operator).as_secs_f64()));
    timed.chain([share("other", other)]).collect()
}

/// The step beside the bare products that it cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct OverProducts {
    pub(crate) own_products_ms_per_token: f64,
    pub(crate) gemm_products_ms_per_token: f64,
    pub(crate) step_over_own_products: f64,
    pub(crate) step_over_gemm: f64,
    /// Over the faster of the two.
    pub(crate) step_over_best_products: f64,
}

impl OverProducts {
    /// From the seconds a token of the step and of the products.
    pub(crate) fn new(step: f64, products: Seconds) -> Self {
        Self {
            own_products_ms_per_token: 1e3 * products.own,
            gemm_products_ms_per_token: 1e3 * products.gemm,
            step_over_own_products: step / products.own,
            step_over_gemm: step / products.gemm,
            step_over_best_products: step / products.own.min(products.gemm),
        }
    }
}

/// Everything for people: a table a question.
pub(crate) fn text(all: &[Figures]) -> String {
    let mut parts = vec![
        format!("Speed and memory\n{}", speed(all)),
        format!("One more job\n{}", one_more(all)),
        format!("Share of the step, %\n{}", operators(all)),
    ];
    if all.iter().any(|figures| figures.products.is_some()) {
        parts.push(format!("Beside bare products\n{}", products(all)));
    }
    parts.join("\n")
}

fn table<const N: usize>(
    heads: [&'static str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new(&heads.map(|head| (head, Align::Right)));
    rows.for_each(|row| table.row(row));
    table.text()
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

fn speed(all: &[Figures]) -> String {
    let heads = [
        "jobs",
        "tok/s",
        "pads",
        "CPU ms/tok",
        "peak PSS",
        "PSS after",
    ];
    let rows = all.iter().map(|figures| {
        [
            figures.jobs.to_string(),
            format!("{:.1}", figures.tokens_per_second),
            figures.wasted_rows.to_string(),
            dash(figures.cpu_ms_per_token.map(|ms| format!("{ms:.2}"))),
            dash(figures.peak_pss_bytes.map(render::bytes)),
            dash(figures.pss_bytes.map(render::bytes)),
        ]
    });
    table(heads, rows)
}

fn one_more(all: &[Figures]) -> String {
    let heads = [
        "jobs",
        "memory",
        "over 16 B/value",
        "admitted",
        "first step done",
    ];
    let ms = |seconds: f64| format!("{:.0} ms", 1e3 * seconds);
    let rows = all.iter().map(|figures| {
        [
            figures.jobs.to_string(),
            render::bytes(figures.job_bytes),
            format!("{:.2}x", figures.job_bytes_over_16_a_value),
            ms(figures.admission_of_one_more_job_seconds),
            ms(figures.start_of_one_more_job_seconds),
        ]
    });
    table(heads, rows)
}

fn operators(all: &[Figures]) -> String {
    let mut heads = vec![("jobs", Align::Right)];
    if let Some(figures) = all.first() {
        let names = figures.operators.iter().map(|share| share.operator);
        heads.extend(names.map(|name| (name, Align::Right)));
    }
    let mut table = Table::new(&heads);
    for figures in all {
        let shares = figures
            .operators
            .iter()
            .map(|share| format!("{:.1}", 100.0 * share.share));
        table.row([figures.jobs.to_string()].into_iter().chain(shares));
    }
    table.text()
}

fn products(all: &[Figures]) -> String {
    let heads = [
        "jobs",
        "ours ms/tok",
        "gemm ms/tok",
        "step/ours",
        "step/gemm",
        "step/best",
    ];
    let rows = all.iter().filter_map(|figures| {
        let over = figures.products?;
        Some([
            figures.jobs.to_string(),
            format!("{:.2}", over.own_products_ms_per_token),
            format!("{:.2}", over.gemm_products_ms_per_token),
            format!("{:.2}", over.step_over_own_products),
            format!("{:.2}", over.step_over_gemm),
            format!("{:.2}", over.step_over_best_products),
        ])
    });
    table(heads, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_operator_took_is_other() {
        let shares = shares(&Timings::default(), 2.0, 4);
        let names: Vec<_> = shares.iter().map(|share| share.operator).collect();
        assert_eq!(
            (names[0], names.last()),
            ("frozen_products", Some(&"other"))
        );
        let other = shares.last().map(|share| (share.ms_per_token, share.share));
        assert_eq!(other, Some((500.0, 1.0)));
        assert!((shares.iter().map(|share| share.share).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_faster_products_are_the_measure() {
        let products = Seconds {
            own: 2.0,
            gemm: 4.0,
        };
        let over = OverProducts::new(5.0, products);
        assert_eq!(over.step_over_own_products, 2.5);
        assert_eq!(over.step_over_gemm, 1.25);
        assert_eq!(over.step_over_best_products, 2.5);
    }
}
