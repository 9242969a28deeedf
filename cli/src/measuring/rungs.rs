//! Sizes at which operations are timed, and how often.

use serde_json::{Value, json};

/// What is timed.
#[derive(Clone, Debug)]
pub(crate) struct Rungs {
    /// Rows of a pass.
    pub(crate) rows: Vec<usize>,
    /// Rows that count in the loss.
    pub(crate) counted: Vec<usize>,
    /// Lengths of sequences in attention.
    pub(crate) lengths: Vec<usize>,
    /// Rows of a pass in which adapters are timed.
    pub(crate) adapter_rows: Vec<usize>,
    /// Ranks of LoRA.
    pub(crate) ranks: Vec<u64>,
    /// Inner sizes of bottlenecks.
    pub(crate) sizes: Vec<u64>,
    /// Whether methods beside LoRA and bottlenecks are timed.
    pub(crate) all_methods: bool,
    /// Least passes of each size; the median counts.
    pub(crate) passes: usize,
}

impl Rungs {
    /// All that a profile holds, or what fits into some ten seconds; no sequence is longer than the model takes.
    pub(crate) fn new(quick: bool, context: usize) -> Self {
        let within = |lengths: &[usize]| -> Vec<usize> {
            let mut within: Vec<usize> = lengths
                .iter()
                .map(|length| (*length).min(context))
                .collect();
            within.dedup();
            within
        };
        if quick {
            return Self {
                rows: vec![64, 512],
                counted: vec![16, 256],
                lengths: within(&[64, 512]),
                adapter_rows: vec![64, 512],
                ranks: vec![16],
                sizes: vec![16],
                all_methods: false,
                passes: 2,
            };
        }
        Self {
            rows: vec![16, 64, 128, 256, 512, 1024, 2048],
            counted: vec![16, 64, 256, 1024],
            lengths: within(&[16, 64, 128, 256, 512, 1024, 2048]),
            adapter_rows: vec![64, 256, 1024],
            ranks: vec![4, 16, 64],
            sizes: vec![8, 64],
            all_methods: true,
            passes: 5,
        }
    }

    /// Rows of the passes in which attention over sequences of a length is timed: whole sequences, a few and many.
    pub(crate) fn rows_of_length(&self, length: usize) -> Vec<usize> {
        let most = self.rows.last().copied().unwrap_or(512);
        let mut rows = vec![length];
        for wanted in [4 * length, most] {
            let whole = wanted / length * length;
            if whole > length && whole <= most {
                rows.push(whole);
            }
        }
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

/// An adapter to be timed: its name and width in profiles, and what a job would ask for at a target.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// As profiles name it.
    pub(crate) method: &'static str,
    /// As profiles count it.
    pub(crate) width: u64,
    /// Whether it is at linear layers; else it is beside the feed-forward half.
    pub(crate) at_linear: bool,
    make: fn(u64, &str) -> Value,
}

impl Kind {
    /// The adapter of a job, at a target where the method has one.
    pub(crate) fn spec(&self, target: &str) -> Value {
        (self.make)(self.width, target)
    }
}

impl Rungs {
    /// The adapters to be timed.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let lora = self.ranks.iter().map(|rank| Kind {
            method: "lora",
            width: *rank,
            at_linear: true,
            make: |rank, target| json!({ "method": "lora", "rank": rank, "targets": [target] }),
        });
        let bottleneck = self.sizes.iter().map(|size| Kind {
            method: "bottleneck",
            width: *size,
            at_linear: false,
            make: |size, _| json!({ "method": "bottleneck", "size": size, "placement": "pfeiffer" }),
        });
        let mut kinds: Vec<Kind> = lora.chain(bottleneck).collect();
        if self.all_methods {
            kinds.push(Kind {
                method: "ia3",
                width: 1,
                at_linear: true,
                make: |_, target| json!({ "method": "ia3", "targets": [target], "feedforward": [] }),
            });
            kinds.push(Kind {
                method: "bitfit",
                width: 1,
                at_linear: true,
                make: |_, target| json!({ "method": "bitfit", "targets": [target] }),
            });
            // The width of a sparse delta is values of a million.
            kinds.push(Kind {
                method: "diff",
                width: 5_000,
                at_linear: true,
                make: |width, target| {
                    json!({ "method": "diff", "targets": [target], "density": width as f64 / 1e6 })
                },
            });
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use shared::job::AdapterSpec;

    use super::*;

    #[test]
    fn every_kind_is_one_that_a_job_may_ask_for() {
        for kind in Rungs::new(false, 2048).kinds() {
            let spec: AdapterSpec = serde_json::from_value(kind.spec("q_proj")).expect("a method");
            assert_eq!(spec.method(), kind.method);
            let planned = coordinator::plan::adapter::Adapter::of(&spec);
            assert_eq!(
                (planned.width, planned.sites.len()),
                (kind.width, 1),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn sequences_are_whole_and_within_the_context() {
        let rungs = Rungs::new(false, 200);
        assert_eq!(rungs.lengths, [16, 64, 128, 200]);
        for length in &rungs.lengths {
            let rows = rungs.rows_of_length(*length);
            assert!(
                rows.iter().all(|rows| rows.is_multiple_of(*length)),
                "{rows:?}"
            );
            assert_eq!(rows.first(), Some(length));
        }
    }
}
