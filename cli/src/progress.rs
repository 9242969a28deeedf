//! Progress of long work: a bar where a person watches, plain lines elsewhere, nothing for programs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::render::{self, Output};

/// Progress of work that is counted in bytes or in steps.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: Option<Lines>,
    in_bytes: bool,
}

/// What plain lines need: how much was said last.
#[derive(Debug)]
struct Lines {
    name: String,
    tenths_said: u64,
}

impl Progress {
    /// Work of so many bytes.
    pub(crate) fn bytes(output: &Output, name: &str, total: u64) -> Self {
        const BAR: &str = "{msg:24} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        Self::new(output, name, total, BAR, true)
    }

    /// Work of so many steps.
    pub(crate) fn steps(output: &Output, name: &str, total: u64) -> Self {
        Self::new(
            output,
            name,
            total,
            "{msg:24} [{bar:30}] {pos}/{len} {eta}",
            false,
        )
    }

    fn new(output: &Output, name: &str, total: u64, template: &str, in_bytes: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if output.watched() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_style(style(template));
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        bar.set_message(name.to_owned());
        let lines = (output.talks() && !output.watched()).then(|| Lines {
            name: name.to_owned(),
            tenths_said: 0,
        });
        Self {
            bar,
            lines,
            in_bytes,
        }
    }

    /// Corrects the total.
    pub(crate) fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Notes that so much is done in all.
    pub(crate) fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        let total = self.bar.length().unwrap_or(0);
        let Some(lines) = &mut self.lines else { return };
        let tenths = (done * 10).checked_div(total).unwrap_or(0);
        if tenths > lines.tenths_said {
            lines.tenths_said = tenths;
            let shown = |value| {
                if self.in_bytes {
                    render::bytes(value)
                } else {
                    render::count(value)
                }
            };
            eprintln!("{}: {} of {}", lines.name, shown(done), shown(total));
        }
    }

    /// Notes that so much more is done.
    pub(crate) fn add(&mut self, more: u64) {
        self.set(self.bar.position() + more);
    }

    /// Takes the bar away; nothing is shown after it.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Ends the work.
    pub(crate) fn finish(self) {
        self.clear();
    }
}

/// A bar's form; a template that does not parse is shown as the plain default.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
