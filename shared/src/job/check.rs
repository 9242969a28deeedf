//! Everything wrong with a job, found before anything runs.

use std::fmt;

use super::{AdapterSpec, JobSpec};
use crate::model::{ModelShape, Target};

/// One thing wrong with a job: which key, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key within the job, such as `adapter.rank`.
    pub key: &'static str,
    /// What is wrong, the limit and the remedy.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl JobSpec {
    /// Lists everything wrong with the job for a backbone of this shape.
    #[must_use]
    pub fn problems(&self, shape: &ModelShape) -> Vec<Problem> {
        let mut found = Found::default();
        self.adapter.collect(shape, &mut found);
        self.number_problems(&mut found);
        if let Some(length) = self.data.max_length {
            found.when(
                length < 2 || length > shape.max_positions,
                "data.max_length",
                || {
                    format!(
                        "{length} is outside 2 to {} (the model's context)",
                        shape.max_positions
                    )
                },
            );
        }
        found.0
    }

    fn number_problems(&self, found: &mut Found) {
        let (o, t, s) = (&self.optimizer, &self.train, &self.schedule);
        found.positive("optimizer.learning_rate", o.learning_rate);
        found.positive("optimizer.epsilon", o.epsilon);
        found.share("optimizer.weight_decay", o.weight_decay);
        found.below_one("optimizer.momentum", o.momentum);
        found.below_one("optimizer.betas", o.betas[0]);
        found.below_one("optimizer.betas", o.betas[1]);
        if let Some(norm) = o.max_grad_norm {
            found.positive("optimizer.max_grad_norm", norm);
        }
        found.when(t.batch_size == 0, "train.batch_size", || {
            "is 0: use at least 1".into()
        });
        found.when(t.accumulation == 0, "train.accumulation", || {
            "is 0: use at least 1".into()
        });
        match t.steps {
            Some(steps) => {
                found.when(steps == 0, "train.steps", || "is 0: use at least 1".into());
            }
            None => found.positive("train.epochs", t.epochs),
        }
        found.share("schedule.min_ratio", s.min_ratio);
        found.share("schedule.warmup_ratio", s.warmup_ratio);
        found.below_one("data.eval_split", self.data.eval_split);
        found.share("data.max_dropped", self.data.max_dropped);
        found.when(
            !(self.eval.min_delta.is_finite() && self.eval.min_delta >= 0.0),
            "eval.min_delta",
            || format!("{} is not a finite number from 0 up", self.eval.min_delta),
        );
        found.when(self.eval.every_steps == Some(0), "eval.every_steps", || {
            "is 0: use at least 1, or leave it out".into()
        });
        found.when(self.eval.patience == Some(0), "eval.patience", || {
            "is 0: use at least 1, or leave it out".into()
        });
        found.when(
            self.checkpoint.keep_last == 0,
            "checkpoint.keep_last",
            || "is 0: at least one checkpoint must stay".into(),
        );
    }
}

impl AdapterSpec {
    /// Lists everything wrong with the method for a backbone of this shape.
    #[must_use]
    pub fn problems(&self, shape: &ModelShape) -> Vec<Problem> {
        let mut found = Found::default();
        self.collect(shape, &mut found);
        found.0
    }

    fn collect(&self, shape: &ModelShape, found: &mut Found) {
        let width = |found: &mut Found, key, value: usize, what: &str| {
            found.when(value == 0 || value > shape.hidden, key, || {
                format!(
                    "{what} {value} is outside 1 to {} (the hidden size)",
                    shape.hidden
                )
            });
        };
        let tokens = |found: &mut Found, key, value: usize| {
            found.when(value == 0 || value >= shape.max_positions, key, || {
                format!(
                    "{value} virtual tokens: use 1 to {}",
                    shape.max_positions - 1
                )
            });
        };
        match self {
            Self::Lora(spec) => {
                width(found, "adapter.rank", spec.rank, "rank");
                found.positive("adapter.alpha", spec.alpha());
                found.positive("adapter.lr_ratio", spec.lr_ratio);
                found.below_one("adapter.dropout", spec.dropout);
                found.targets(&spec.targets, !spec.dora, "DoRA");
            }
            Self::Ia3(spec) => {
                let targets = found.targets(&spec.targets, false, "IA3");
                for target in &spec.feedforward {
                    found.when(!targets.contains(target), "adapter.feedforward", || {
                        format!("{target} is not among adapter.targets: add it there")
                    });
                }
            }
            Self::Bottleneck(spec) => width(found, "adapter.size", spec.size, "size"),
            Self::Prefix(spec) => {
                tokens(found, "adapter.tokens", spec.tokens);
                found.when(spec.projection == Some(0), "adapter.projection", || {
                    "is 0: use at least 1, or leave it out".into()
                });
            }
            Self::Prompt(spec) => tokens(found, "adapter.tokens", spec.tokens),
            Self::BitFit(spec) => {
                found.targets(&spec.targets, false, "BitFit");
            }
            Self::Diff(spec) => {
                found.positive("adapter.density", spec.density);
                found.share("adapter.density", spec.density);
                found.targets(&spec.targets, false, "diff pruning");
            }
        }
    }
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn when(&mut self, wrong: bool, key: &'static str, message: impl FnOnce() -> String) {
        if wrong {
            self.0.push(Problem {
                key,
                message: message(),
            });
        }
    }

    fn positive(&mut self, key: &'static str, value: f64) {
        self.when(!(value.is_finite() && value > 0.0), key, || {
            format!("{value} is not a finite number above 0")
        });
    }

    fn share(&mut self, key: &'static str, value: f64) {
        self.when(!(0.0..=1.0).contains(&value), key, || {
            format!("{value} is outside 0 to 1")
        });
    }

    fn below_one(&mut self, key: &'static str, value: f64) {
        self.when(!(0.0..1.0).contains(&value), key, || {
            format!("{value} is outside 0 (included) to 1 (excluded)")
        });
    }

    fn targets(&mut self, targets: &super::Targets, head: bool, method: &str) -> Vec<Target> {
        match targets.resolve() {
            Err(message) => {
                self.0.push(Problem {
                    key: "adapter.targets",
                    message,
                });
                Vec::new()
            }
            Ok(list) => {
                self.when(
                    !head && list.contains(&Target::LmHead),
                    "adapter.targets",
                    || format!("lm_head is not a target of {method}: use q_proj ... down_proj"),
                );
                list
            }
        }
    }
}
