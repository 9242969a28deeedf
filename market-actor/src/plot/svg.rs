//! SVG text: few shapes, numbers to a tenth of a pixel.

use std::fmt::Write as _;

/// A picture being written.
pub(super) struct Svg {
    text: String,
}

/// Where a text stands with its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let mut svg = Self {
            text: String::new(),
        };
        let (w, h) = (number(width), number(height));
        svg.push(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">"
        ));
        svg.push(&format!(
            "<rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>"
        ));
        svg
    }

    pub(super) fn heading(&mut self, x: f64, y: f64, words: &str) {
        self.push(&format!(
            "<text x=\"{}\" y=\"{}\" font-size=\"16\" font-weight=\"bold\" fill=\"#222222\">{}</text>",
            number(x),
            number(y),
            escaped(words)
        ));
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, fill: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(&format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{}</text>",
            number(x),
            number(y),
            escaped(words)
        ));
    }

    /// A line through points; `dash` empty for a solid one.
    pub(super) fn line(&mut self, points: &[(f64, f64)], stroke: &str, width: &str, dash: &str) {
        if points.len() < 2 {
            return;
        }
        let dash = if dash.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dash}\"")
        };
        self.push(&format!(
            "<path d=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dash}/>",
            path(points)
        ));
    }

    /// The inside of a closed line.
    pub(super) fn shape(&mut self, points: &[(f64, f64)], fill: &str, opacity: &str) {
        if points.len() < 3 {
            return;
        }
        self.push(&format!(
            "<path d=\"{}Z\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>",
            path(points)
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }

    fn push(&mut self, element: &str) {
        writeln!(self.text, "{element}").expect("a text takes what is written");
    }
}

/// To a tenth, without a fraction that is zero.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let short = text.strip_suffix(".0").unwrap_or(&text);
    if short == "-0" {
        "0".to_owned()
    } else {
        short.to_owned()
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let step = if at == 0 { 'M' } else { 'L' };
        write!(text, "{step}{} {}", number(*x), number(*y)).expect("a text takes what is written");
    }
    text
}

fn escaped(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3.0), "3");
        assert_eq!(number(3.16), "3.2");
        assert_eq!(number(-0.01), "0");
    }

    #[test]
    fn words_are_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\n"), "a&lt;b&gt; &amp; &quot;c&quot; ");
    }
}
