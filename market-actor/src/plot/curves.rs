//! A value by another, a line for each of several names: cost against the deadline, for one.

use super::axis::{tick_text, ticks};
use super::svg::{Anchor, Svg};

/// Several lines over one axis.
#[derive(Clone, Debug)]
pub struct Curves<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below it.
    pub across: &'a str,
    /// At the left.
    pub upwards: &'a str,
    /// Name and points `(x, y)` of each line, from left to right.
    pub lines: &'a [(String, Vec<(f64, f64)>)],
}

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 64.0;
/// Room for the names of lines.
const RIGHT: f64 = 300.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 52.0;
const GRID: &str = "#e4e4e4";
const INK: &str = "#444444";

/// Colours that people with any kind of sight tell apart (Okabe and Ito), then the same dashed.
const COLOURS: [&str; 7] = [
    "#222222", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];
const DASHES: [&str; 3] = ["", "6 3", "2 3"];

impl Curves<'_> {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT);
        svg.heading(LEFT, 24.0, self.title);
        svg.text((LEFT, TOP - 10.0), Anchor::Start, "#222222", self.upwards);
        let all = || self.lines.iter().flat_map(|(_, points)| points);
        let rising = ticks(all().map(|point| point.1).fold(0.0, f64::max), 0.0);
        let most = rising.last().copied().unwrap_or(1.0);
        let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let last = all().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        let span = if last > first { last - first } else { 1.0 };
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let x = |value: f64| LEFT + (right - LEFT) * (value - first) / span;
        let y = |value: f64| bottom - (bottom - TOP) * (value / most).clamp(0.0, 1.0);
        let step = rising.get(1).copied().unwrap_or(1.0);
        for tick in &rising {
            svg.line(&[(LEFT, y(*tick)), (right, y(*tick))], GRID, "1", "");
            let words = tick_text(*tick, step);
            svg.text((LEFT - 8.0, y(*tick) + 4.0), Anchor::End, INK, &words);
        }
        let mut marks: Vec<f64> = all().map(|point| point.0).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        for mark in marks {
            svg.line(&[(x(mark), TOP), (x(mark), bottom)], GRID, "1", "");
            let words = format!("{mark}");
            svg.text((x(mark), bottom + 18.0), Anchor::Middle, INK, &words);
        }
        svg.line(
            &[(LEFT, TOP), (LEFT, bottom), (right, bottom)],
            INK,
            "1",
            "",
        );
        let middle = f64::midpoint(LEFT, right);
        svg.text((middle, bottom + 38.0), Anchor::Middle, INK, self.across);
        for (at, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let dash = DASHES[at / COLOURS.len() % DASHES.len()];
            let places: Vec<(f64, f64)> = points.iter().map(|(a, b)| (x(*a), y(*b))).collect();
            svg.line(&places, colour, "2", dash);
            let line = TOP + 18.0 * at as f64;
            svg.line(
                &[(right + 16.0, line), (right + 44.0, line)],
                colour,
                "2",
                dash,
            );
            svg.text((right + 52.0, line + 4.0), Anchor::Start, INK, name);
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_its_last_point_is() {
        let lines = [
            ("optimum".to_owned(), vec![(18.0, 40.0), (24.0, 30.0)]),
            (
                "on-demand <b>".to_owned(),
                vec![(18.0, 100.0), (24.0, 90.0)],
            ),
        ];
        let picture = Curves {
            title: "cost",
            across: "deadline, slots",
            upwards: "USD",
            lines: &lines,
        };
        let svg = picture.svg();
        // 100 of 100 is at the top, 344 pixels over 0; from 18 to 24 the frame is crossed.
        assert!(svg.contains("M64 64L700 98.4"), "{svg}");
        assert!(svg.contains("M64 270.4L700 304.8"), "{svg}");
        assert!(svg.contains("on-demand &lt;b&gt;"), "{svg}");
        assert!(svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn nothing_to_show_is_a_frame() {
        let picture = Curves {
            title: "none",
            across: "x",
            upwards: "y",
            lines: &[],
        };
        assert!(picture.svg().contains(">none</text>"));
    }
}
