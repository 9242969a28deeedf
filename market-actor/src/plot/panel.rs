//! One panel: a frame with an axis of slots to the right and one of values upwards, and what is drawn in it.

use super::axis::{Times, tick_text};
use super::svg::{Anchor, Svg};

/// Where a panel is and what its axes reach. Values start at 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// At the right end.
    pub(super) slots: usize,
    /// At the upper end.
    pub(super) most: f64,
}

/// An entry of a panel's legend.
#[derive(Clone, Debug)]
pub(super) struct Key {
    words: &'static str,
    colour: &'static str,
    /// A line's dashes; nothing for a block.
    dash: Option<&'static str>,
}

const GRID: &str = "#e4e4e4";
const INK: &str = "#444444";

impl Key {
    pub(super) const fn line(
        words: &'static str,
        colour: &'static str,
        dash: &'static str,
    ) -> Self {
        Self {
            words,
            colour,
            dash: Some(dash),
        }
    }

    pub(super) const fn block(words: &'static str, colour: &'static str) -> Self {
        Self {
            words,
            colour,
            dash: None,
        }
    }
}

/// Pixels of a letter at the size of the keys, of a wide typeface: a picture does not know which one it is shown in.
const fn width(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | ' ' | '-' => 4.6,
        'm' | 'w' | '%' => 11.6,
        _ => 7.6,
    }
}

impl Frame {
    fn x(&self, slot: f64) -> f64 {
        self.left + self.width * slot / self.slots as f64
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.most).clamp(0.0, 1.0);
        self.top + self.height * (1.0 - share)
    }

    /// Lines at the marks of both axes, and values at those of the upward one.
    pub(super) fn grid(&self, svg: &mut Svg, ticks: &[f64], times: &Times) {
        let right = self.left + self.width;
        let bottom = self.top + self.height;
        for (place, _) in &times.marks {
            let x = self.x(*place);
            svg.line(&[(x, self.top), (x, bottom)], GRID, "1", "");
        }
        let step = ticks.get(1).copied().unwrap_or(1.0);
        for tick in ticks {
            let y = self.y(*tick);
            svg.line(&[(self.left, y), (right, y)], GRID, "1", "");
            let words = tick_text(*tick, step);
            svg.text((self.left - 8.0, y + 4.0), Anchor::End, INK, &words);
        }
    }

    pub(super) fn border(&self, svg: &mut Svg) {
        let (right, bottom) = (self.left + self.width, self.top + self.height);
        let corners = [(self.left, self.top), (self.left, bottom), (right, bottom)];
        svg.line(&corners, INK, "1", "");
    }

    /// The marks of the axis of time, and its title.
    pub(super) fn times(&self, svg: &mut Svg, times: &Times) {
        let bottom = self.top + self.height;
        for (place, words) in &times.marks {
            let x = self.x(*place);
            svg.line(&[(x, bottom), (x, bottom + 4.0)], INK, "1", "");
            svg.text((x, bottom + 18.0), Anchor::Middle, INK, words);
        }
        let middle = self.left + self.width / 2.0;
        svg.text((middle, bottom + 36.0), Anchor::Middle, INK, &times.title);
    }

    /// The panel's title, and its keys at the right.
    pub(super) fn head(&self, svg: &mut Svg, title: &str, keys: &[Key]) {
        let y = self.top - 9.0;
        svg.text((self.left, y), Anchor::Start, "#222222", title);
        let mut right = self.left + self.width;
        for key in keys.iter().rev() {
            let words: f64 = key.words.chars().map(width).sum();
            svg.text((right - words, y), Anchor::Start, INK, key.words);
            let (from, to) = (right - words - 28.0, right - words - 6.0);
            let y = y - 4.0;
            match key.dash {
                Some(dash) => svg.line(&[(from, y), (to, y)], key.colour, "2", dash),
                None => {
                    let block = [
                        (from, y - 5.0),
                        (to, y - 5.0),
                        (to, y + 5.0),
                        (from, y + 5.0),
                    ];
                    svg.shape(&block, key.colour, "0.6");
                }
            }
            right = from - 18.0;
        }
    }

    /// A line at the begin of a slot, and words at its foot on the side where there is room.
    pub(super) fn mark(&self, svg: &mut Svg, slot: usize, words: &str) {
        let x = self.x(slot as f64);
        let bottom = self.top + self.height;
        svg.line(&[(x, self.top), (x, bottom)], "#888888", "1", "3 3");
        if words.is_empty() {
            return;
        }
        let y = bottom - 7.0;
        if x < self.left + 0.8 * self.width {
            svg.text((x + 5.0, y), Anchor::Start, INK, words);
        } else {
            svg.text((x - 5.0, y), Anchor::End, INK, words);
        }
    }

    /// A value a slot, from slot `first` on, as steps.
    pub(super) fn line(
        &self,
        svg: &mut Svg,
        first: usize,
        values: &[f64],
        colour: &str,
        width: &str,
        dash: &str,
    ) {
        svg.line(&self.steps(first, values), colour, width, dash);
    }

    /// What is between two values a slot.
    pub(super) fn band(&self, svg: &mut Svg, first: usize, low: &[f64], high: &[f64], fill: &str) {
        let mut points = self.steps(first, high);
        points.extend(self.steps(first, low).into_iter().rev());
        svg.shape(&points, fill, "0.35");
    }

    /// What is below a value a slot.
    pub(super) fn area(&self, svg: &mut Svg, first: usize, values: &[f64], fill: &str) {
        let mut points = self.steps(first, values);
        points.extend(
            self.steps(first, &vec![0.0; values.len()])
                .into_iter()
                .rev(),
        );
        svg.shape(&points, fill, "0.15");
    }

    /// What is between two values a slot, solid.
    pub(super) fn bars(&self, svg: &mut Svg, low: &[f64], high: &[f64], fill: &str) {
        let mut points = self.steps(0, high);
        points.extend(self.steps(0, low).into_iter().rev());
        svg.shape(&points, fill, "0.6");
    }

    /// The corners of steps; slots of one value are one step.
    fn steps(&self, first: usize, values: &[f64]) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let is_new = at == 0 || values[at - 1] != *value;
            if is_new {
                let x = self.x((first + at) as f64);
                if at > 0 {
                    points.push((x, self.y(values[at - 1])));
                }
                points.push((x, self.y(*value)));
            }
        }
        if let Some(last) = values.last() {
            points.push((self.x((first + values.len()) as f64), self.y(*last)));
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_corners_where_values_change() {
        let frame = Frame {
            left: 10.0,
            top: 0.0,
            width: 40.0,
            height: 10.0,
            slots: 4,
            most: 5.0,
        };
        let points = frame.steps(1, &[5.0, 5.0, 0.0]);
        assert_eq!(
            points,
            [(20.0, 0.0), (40.0, 0.0), (40.0, 10.0), (50.0, 10.0)]
        );
        assert!(frame.steps(0, &[]).is_empty());
        // What is beyond the axis is held at its end.
        assert_eq!(frame.steps(0, &[9.0])[0].1, 0.0);
    }
}
