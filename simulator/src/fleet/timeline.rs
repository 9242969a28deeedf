//! A picture of a week: jobs on every instance by the hour, the queue, tokens a second. SVG, without a script.

use std::fmt::Write as _;

use super::report::{Comparison, Outcome};

const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 70.0;
/// Most columns of an instance.
const COLUMNS: usize = 336;

/// Draws all systems, one below another.
#[must_use]
pub fn svg(comparison: &Comparison) -> String {
    let panel = 220.0;
    let height = 40.0 + panel * comparison.outcomes.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        LEFT + WIDTH + 20.0
    );
    // One scale for all systems: a shade is as many jobs wherever it stands.
    let looked = comparison.outcomes.iter().flat_map(|o| &o.looked);
    let most_jobs = looked.flat_map(|(jobs, _)| jobs).max();
    let most_jobs = most_jobs.copied().unwrap_or(1).max(1);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"20\">{} GPUs, {}: jobs of each instance by the hour (white: none, darkest: {most_jobs})\
         </text>",
        comparison.gpus,
        escaped(&comparison.source)
    );
    let most = comparison.outcomes.iter().flat_map(|o| &o.rates).max();
    let most = most.copied().unwrap_or(1).max(1) as f64;
    for (at, outcome) in comparison.outcomes.iter().enumerate() {
        let scale = (f64::from(most_jobs), most);
        draw(outcome, 40.0 + panel * at as f64, scale, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn draw(outcome: &Outcome, top: f64, (most, most_rate): (f64, f64), svg: &mut String) {
    let hours = outcome.looked.len().max(1);
    let each = WIDTH / hours as f64;
    // Of a long time every so many hours is shown.
    let every = hours.div_ceil(COLUMNS);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.0}\">{}: {:.0} tokens/s</text>",
        top + 12.0,
        outcome.system.name(),
        outcome.rate()
    );
    let rows = outcome.instances.clamp(1, 32);
    let tall = 130.0 / rows as f64;
    for (hour, (jobs, _)) in outcome.looked.iter().enumerate().step_by(every) {
        for row in 0..rows {
            // Instances in as many rows as are to be seen: the mean of each.
            let (from, to) = (row * jobs.len() / rows, (row + 1) * jobs.len() / rows);
            let few = &jobs[from..to.max(from)];
            let sum: f64 = few.iter().map(|count| f64::from(*count)).sum();
            let mean = sum / few.len().max(1) as f64;
            if mean > 0.0 {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{tall:.2}\" fill=\"#1f4e79\" \
                     fill-opacity=\"{:.2}\"/>",
                    LEFT + hour as f64 * each,
                    top + 18.0 + row as f64 * tall,
                    each * every as f64 + 0.05,
                    0.08 + 0.9 * mean / most
                );
            }
        }
    }
    // Hours at both ends, and days between.
    for hour in (0..=hours).filter(|hour| hour % (24 * every) == 0 || *hour == hours) {
        let anchor = if hour == 0 { "start" } else { "end" };
        let crowded = hours - hour < 12 * every && hour != hours;
        if !crowded {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.0}\" font-size=\"9\" text-anchor=\"{anchor}\">{hour} h</text>",
                LEFT + hour as f64 * each,
                top + 157.0
            );
        }
    }
    let base = top + 208.0;
    let line = |values: Vec<f64>, scale: f64, colour: &str| {
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .step_by(every)
            .map(|(hour, value)| {
                let x = LEFT + (hour as f64 + 0.5) * each;
                format!("{x:.1},{:.1}", base - 48.0 * value / scale.max(1.0))
            })
            .collect();
        format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\n",
            points.join(" ")
        )
    };
    let rates = outcome.rates.iter().map(|rate| *rate as f64).collect();
    svg.push_str(&line(rates, most_rate, "#2e7d32"));
    let queue: Vec<f64> = outcome
        .looked
        .iter()
        .map(|(_, queue)| *queue as f64)
        .collect();
    let longest = queue.iter().copied().fold(0.0, f64::max);
    svg.push_str(&line(queue, longest, "#c62828"));
    let _ = writeln!(
        svg,
        "<text x=\"4\" y=\"{:.0}\" fill=\"#2e7d32\">{most_rate:.0}</text><text x=\"4\" y=\"{:.0}\" fill=\"#2e7d32\">\
         tokens/s</text><text x=\"4\" y=\"{:.0}\" fill=\"#c62828\">queue {longest:.0}</text>",
        base - 44.0,
        base - 30.0,
        base - 6.0
    );
}
