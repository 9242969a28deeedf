//! The series of one process: what measures holds handles, who scrapes gets a text.
//!
//! Nothing is global: two actors in one process, as in tests, have a registry each.

use std::sync::Arc;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

pub use metrics::{Counter, Gauge, Histogram};

use super::names::{BUILD_INFO, Kind, Series};

/// What the exporter wants to know of who measures; it makes no use of it.
const METADATA: Metadata<'static> = Metadata::new("spotmux", Level::INFO, None);

/// The series of a process.
#[derive(Clone)]
pub struct Registry {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// With these series, all at zero, and what runs here. TN-3
    #[must_use]
    pub fn new(role: &'static str, version: &'static str, all: &[Series]) -> Self {
        let mut builder = PrometheusBuilder::new();
        for series in all {
            if let Kind::Histogram(bounds) = series.kind {
                let matcher = Matcher::Full(series.name.to_owned());
                let set = builder.set_buckets_for_metric(matcher, bounds);
                builder = set.expect("bounds are not empty");
            }
        }
        let recorder = Arc::new(builder.build_recorder());
        let handle = recorder.handle();
        let this = Self { recorder, handle };
        this.describe(&BUILD_INFO);
        let labels = vec![Label::new("role", role), Label::new("version", version)];
        let key = Key::from_parts(BUILD_INFO.name, labels);
        this.recorder.register_gauge(&key, &METADATA).set(1.0);
        for series in all {
            this.describe(series);
            match series.label {
                None => this.touch(series, None),
                Some((_, values)) => values
                    .iter()
                    .for_each(|value| this.touch(series, Some(value))),
            }
        }
        this
    }

    fn describe(&self, series: &Series) {
        let (name, help) = (KeyName::from_const_str(series.name), series.help.into());
        match series.kind {
            Kind::Counter => self.recorder.describe_counter(name, None, help),
            Kind::Gauge => self.recorder.describe_gauge(name, None, help),
            Kind::Histogram(_) => self.recorder.describe_histogram(name, None, help),
        }
    }

    fn touch(&self, series: &Series, value: Option<&'static str>) {
        let key = key(series, value);
        match series.kind {
            Kind::Counter => drop(self.recorder.register_counter(&key, &METADATA)),
            Kind::Gauge => drop(self.recorder.register_gauge(&key, &METADATA)),
            Kind::Histogram(_) => drop(self.recorder.register_histogram(&key, &METADATA)),
        }
    }

    /// A handle of a counter; `value` is that of its label, if it has one.
    pub fn counter(&self, series: &Series, value: Option<&'static str>) -> Counter {
        self.recorder
            .register_counter(&key(series, value), &METADATA)
    }

    /// A handle of a gauge.
    pub fn gauge(&self, series: &Series, value: Option<&'static str>) -> Gauge {
        self.recorder.register_gauge(&key(series, value), &METADATA)
    }

    /// A handle of a histogram.
    pub fn histogram(&self, series: &Series, value: Option<&'static str>) -> Histogram {
        self.recorder
            .register_histogram(&key(series, value), &METADATA)
    }

    /// All of it in the text form that Prometheus scrapes.
    #[must_use]
    pub fn text(&self) -> String {
        self.handle.render()
    }

    /// Sums up what histograms were told, which is kept one by one until then; now and then, when nobody scrapes.
    pub fn sum_up(&self) {
        self.handle.run_upkeep();
    }
}

/// TN-2: a label that is not in the table is a mistake of who measures.
fn key(series: &Series, value: Option<&'static str>) -> Key {
    debug_assert_eq!(
        series
            .label
            .map(|(_, values)| values.contains(&value.unwrap_or_default())),
        value.map(|_| true),
        "{}",
        series.name
    );
    match (series.label, value) {
        (Some((label, _)), Some(value)) => {
            Key::from_parts(series.name, vec![Label::new(label, value)])
        }
        _ => Key::from_static_name(series.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::names::{COORDINATOR, DEVICE_BUSY, GPU_ACTOR, STEPS};

    #[test]
    fn tn_3_all_series_are_there_from_the_start_with_help_and_kind() {
        for all in [COORDINATOR, GPU_ACTOR] {
            let text = Registry::new("test", "0", all).text();
            for series in all.iter().chain([&BUILD_INFO]) {
                let (name, help) = (series.name, series.help);
                assert!(
                    text.contains(&format!("# HELP {name} {help}\n")),
                    "{name}\n{text}"
                );
                let kind = series.kind.word();
                assert!(
                    text.contains(&format!("# TYPE {name} {kind}\n")),
                    "{name}\n{text}"
                );
                for value in series.label.iter().flat_map(|(_, values)| *values) {
                    assert!(text.contains(&format!("=\"{value}\"")), "{name} {value}");
                }
            }
        }
    }

    #[test]
    fn what_is_measured_is_told() {
        let registry = Registry::new("test", "0", GPU_ACTOR);
        registry.counter(&STEPS, None).increment(3);
        registry
            .histogram(&DEVICE_BUSY, Some("forward"))
            .record(0.002);
        registry.sum_up();
        registry
            .histogram(&DEVICE_BUSY, Some("forward"))
            .record(2.0);
        let text = registry.text();
        for line in [
            "spotmux_steps_total 3",
            "spotmux_device_busy_seconds_bucket{kind=\"forward\",le=\"0.0025\"} 1",
            "spotmux_device_busy_seconds_sum{kind=\"forward\"} 2.002",
            "spotmux_device_busy_seconds_count{kind=\"forward\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let other = Registry::new("test", "0", GPU_ACTOR);
        assert!(
            other
                .text()
                .lines()
                .any(|line| line == "spotmux_steps_total 0")
        );
    }
}
