//! Progress of long reads and writes: a bar where a person watches, plain lines elsewhere, nothing for programs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::remark;
use crate::render::{self, Output};

/// Progress of work that is counted in bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: Option<Lines>,
}

/// What plain lines need: how much was said last.
#[derive(Debug)]
struct Lines {
    name: String,
    quarters_said: u64,
}

impl Progress {
    /// Work of so many bytes.
    pub(crate) fn bytes(output: &Output, name: &str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if output.watched() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_style(style());
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        bar.set_message(remark::harmless(name));
        let lines = (output.talks() && !output.watched()).then(|| Lines {
            name: name.to_owned(),
            quarters_said: 0,
        });
        Self { bar, lines }
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
        let quarters = (done * 4).checked_div(total).unwrap_or(0);
        if quarters > lines.quarters_said {
            lines.quarters_said = quarters;
            let (done, total) = (render::bytes(done), render::bytes(total));
            remark::say(&format!("{}: {done} of {total}", lines.name));
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
fn style() -> ProgressStyle {
    const BAR: &str = "{msg:24} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    ProgressStyle::with_template(BAR)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
