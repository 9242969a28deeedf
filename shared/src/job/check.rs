//! Everything wrong with a job, found before anything runs.

use std::fmt;

use super::limits::{
    MAX_ALPHA, MAX_EPOCHS, MAX_INIT_TEXT, MAX_PATH, MAX_PROJECTION, MAX_REPLICAS, MAX_SAMPLES,
    MAX_STEPS,
};
use super::{AdapterSpec, JobSpec};
use crate::ids::JobId;
use crate::model::{ModelShape, Target};

/// Longest name of a tenant, in bytes.
const MAX_TENANT: usize = 64;

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
        self.problems_with(Some(shape))
    }

    /// Lists everything wrong with the job whatever the backbone is.
    #[must_use]
    pub fn problems_anywhere(&self) -> Vec<Problem> {
        self.problems_with(None)
    }

    fn problems_with(&self, shape: Option<&ModelShape>) -> Vec<Problem> {
        let mut found = Found::default();
        let name = self.name.as_str();
        found.when(name.parse::<JobId>().is_ok(), "name", || {
            format!("{name} is how a cluster numbers jobs, and would mean another one there: choose another name")
        });
        self.adapter.collect(shape, &mut found);
        self.contradictions(&mut found);
        self.number_problems(&mut found);
        if let Some(tenant) = &self.tenant {
            let plain = tenant.len() <= MAX_TENANT && !tenant.contains([',', '=']);
            found.when(tenant.trim().is_empty() || !plain, "tenant", || {
                format!("{tenant:?} is not a name of 1 to {MAX_TENANT} bytes without commas and equals signs")
            });
        }
        if let Some(market) = &self.market {
            market.collect(&mut found);
        }
        if let Some(length) = self.data.max_length {
            let most = shape.map(|shape| shape.max_positions);
            let fits = length >= 2 && most.is_none_or(|most| length <= most);
            found.when(!fits, "data.max_length", || match most {
                Some(most) => format!("{length} is outside 2 to {most} (the model's context)"),
                None => format!("{length} is less than 2"),
            });
        }
        found.0
    }

    /// Keys that contradict one another.
    fn contradictions(&self, found: &mut Found) {
        let (data, train, schedule) = (&self.data, &self.train, &self.schedule);
        found.when(
            train.epochs.is_some() && train.steps.is_some(),
            "train.epochs",
            || "is given together with train.steps: leave one out".into(),
        );
        let both = schedule.warmup_steps > 0 && schedule.warmup_ratio > 0.0;
        found.when(both, "schedule.warmup_ratio", || {
            "is given together with schedule.warmup_steps: leave one out".into()
        });
        let both = data.eval.is_some() && data.eval_split > 0.0;
        found.when(both, "data.eval_split", || {
            "is given together with data.eval: leave one out".into()
        });
        for (key, path) in [
            ("data.train", Some(&data.train)),
            ("data.eval", data.eval.as_ref()),
        ] {
            let empty = path.is_some_and(|path| path.trim().is_empty());
            found.when(empty, key, || "is empty: name a JSONL file".into());
        }
        for (key, path) in [
            ("data.train", Some(&data.train)),
            ("data.eval", data.eval.as_ref()),
            ("init_from", self.init_from.as_ref()),
        ] {
            found.longest(key, path.map_or(0, String::len), MAX_PATH);
        }
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
        let most = MAX_SAMPLES as u64;
        found.count("train.batch_size", t.batch_size as u64, most);
        found.count(
            "replicas",
            u64::from(self.replicas),
            u64::from(MAX_REPLICAS),
        );
        found.count("train.accumulation", t.accumulation as u64, most);
        let samples = t.batch_size.saturating_mul(t.accumulation);
        let each_fits = t.batch_size.max(t.accumulation) <= MAX_SAMPLES;
        found.when(each_fits && samples > MAX_SAMPLES, "train.batch_size", || {
            format!("times train.accumulation is {samples} samples a step: use at most {MAX_SAMPLES}")
        });
        if let Some(steps) = t.steps {
            found.count("train.steps", steps, MAX_STEPS);
        }
        if let Some(epochs) = t.epochs {
            found.positive("train.epochs", epochs);
            found.when(
                epochs.is_finite() && epochs > MAX_EPOCHS,
                "train.epochs",
                || format!("{epochs} is more than {MAX_EPOCHS}"),
            );
        }
        found.when(s.warmup_steps > MAX_STEPS, "schedule.warmup_steps", || {
            format!("{} is more than {MAX_STEPS}", s.warmup_steps)
        });
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
        self.collect(Some(shape), &mut found);
        found.0
    }

    fn collect(&self, shape: Option<&ModelShape>, found: &mut Found) {
        let width = |found: &mut Found, key, value: usize, what: &str| {
            let most = shape.map(|shape| shape.hidden);
            let fits = value > 0 && most.is_none_or(|most| value <= most);
            found.when(!fits, key, || match most {
                Some(most) => format!("{what} {value} is outside 1 to {most} (the hidden size)"),
                None => format!("{what} is 0: use at least 1"),
            });
        };
        let tokens = |found: &mut Found, key, value: usize| {
            let most = shape.map(|shape| shape.max_positions.saturating_sub(1));
            let fits = value > 0 && most.is_none_or(|most| value <= most);
            found.when(!fits, key, || match most {
                Some(most) => format!("{value} virtual tokens: use 1 to {most}"),
                None => "0 virtual tokens: use at least 1".into(),
            });
        };
        match self {
            Self::Lora(spec) => {
                width(found, "adapter.rank", spec.rank, "rank");
                if let Some(alpha) = spec.alpha {
                    found.when(
                        !(MAX_ALPHA.recip()..=MAX_ALPHA).contains(&alpha),
                        "adapter.alpha",
                        || format!("{alpha} is outside {} to {MAX_ALPHA}", MAX_ALPHA.recip()),
                    );
                }
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
                if let Some(width) = spec.projection {
                    found.count("adapter.projection", width as u64, MAX_PROJECTION as u64);
                }
            }
            Self::Prompt(spec) => {
                tokens(found, "adapter.tokens", spec.tokens);
                let length = spec.init_text.as_ref().map_or(0, String::len);
                found.longest("adapter.init_text", length, MAX_INIT_TEXT);
            }
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
pub(super) struct Found(pub(super) Vec<Problem>);

impl Found {
    pub(super) fn when(
        &mut self,
        wrong: bool,
        key: &'static str,
        message: impl FnOnce() -> String,
    ) {
        if wrong {
            self.0.push(Problem {
                key,
                message: message(),
            });
        }
    }

    /// A text of so many bytes.
    pub(super) fn longest(&mut self, key: &'static str, bytes: usize, most: usize) {
        self.when(bytes > most, key, || {
            format!("has {bytes} bytes: use at most {most}")
        });
    }

    fn count(&mut self, key: &'static str, value: u64, most: u64) {
        self.when(value == 0 || value > most, key, || {
            format!("{value} is outside 1 to {most}")
        });
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::model::ModelShape;

    fn shape() -> ModelShape {
        let config = serde_json::json!({
            "model_type": "llama", "hidden_act": "silu", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 259,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": true,
        });
        crate::model::config::parse(&config.to_string()).unwrap()
    }

    fn keys(more: &str) -> Vec<String> {
        let text = format!(
            r#"{{"name": "a", "data": {{"train": "a.jsonl"}}, "adapter": {{"method": "lora", "rank": 2}}, {more}}}"#
        );
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let spec: JobSpec = serde_json::from_value(value).unwrap();
        spec.problems(&shape())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_name_is_not_the_number_of_another_job() {
        let named = |name: &str| {
            let text = format!(
                r#"{{"name": "{name}", "data": {{"train": "a.jsonl"}}, "adapter": {{"method": "prompt", "tokens": 0}}}}"#
            );
            let spec: JobSpec = serde_json::from_str(&text).unwrap();
            let told = spec.problems_anywhere();
            told.iter().map(|problem| problem.key).collect::<Vec<_>>()
        };
        assert_eq!(named("j1"), ["name", "adapter.tokens"]);
        assert_eq!(named("j1a"), ["adapter.tokens"]);
    }

    #[test]
    fn numbers_that_would_wrap_are_all_told_at_once() {
        let found = keys(
            r#""train": {"batch_size": 4294967296, "accumulation": 9223372036854775807, "steps": 18446744073709551615},
               "schedule": {"warmup_steps": 18446744073709551615},
               "adapter": {"method": "lora", "rank": 0}"#,
        );
        let starts = [
            "adapter.rank: rank 0",
            "train.batch_size: 4294967296 is outside 1 to 1048576",
            "train.accumulation: 9223372036854775807 is outside 1 to 1048576",
            "train.steps: 18446744073709551615 is outside 1 to 1000000000",
            "schedule.warmup_steps: 18446744073709551615",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}");
        }
        let product = keys(r#""train": {"batch_size": 1048576, "accumulation": 2}"#);
        assert!(product[0].contains("2097152 samples"), "{product:?}");
        assert!(keys(r#""train": {"batch_size": 1024, "accumulation": 1024}"#).is_empty());
        let far = keys(r#""train": {"epochs": 1e300}"#);
        assert!(far[0].starts_with("train.epochs"), "{far:?}");
        for alpha in ["1e308", "1e-300", "0"] {
            let found = keys(&format!(
                r#""adapter": {{"method": "lora", "rank": 2, "alpha": {alpha}}}"#
            ));
            assert!(found[0].starts_with("adapter.alpha"), "{found:?}");
        }
    }

    #[test]
    fn texts_are_no_longer_than_an_order_may_carry() {
        let path = |bytes: usize| format!(r#""data": {{"train": "{}"}}"#, "p".repeat(bytes));
        assert_eq!(keys(&path(MAX_PATH)), [""; 0]);
        let found = keys(&path(MAX_PATH + 1));
        assert_eq!(found, ["data.train: has 4097 bytes: use at most 4096"]);
        let long = "z".repeat(MAX_INIT_TEXT + 1);
        let found = keys(&format!(
            r#""data": {{"train": "a", "eval": "{long}"}}, "init_from": "{long}", "market": {{"zones": ["{long}"]}},
               "adapter": {{"method": "prompt", "tokens": 2, "init_text": "{long}"}}"#
        ));
        let named = found.iter().filter_map(|found| found.split(':').next());
        let mut named: Vec<&str> = named.collect();
        named.sort_unstable();
        let long = [
            "adapter.init_text",
            "data.eval",
            "init_from",
            "market.zones",
        ];
        assert_eq!(named, long);
    }

    #[test]
    fn two_keys_for_one_thing_are_a_contradiction() {
        let cases = [
            (r#""train": {"epochs": 1.0, "steps": 5}"#, "train.epochs"),
            (
                r#""schedule": {"warmup_steps": 5, "warmup_ratio": 0.1}"#,
                "schedule.warmup_ratio",
            ),
            (
                r#""data": {"train": "a", "eval": "b", "eval_split": 0.1}"#,
                "data.eval_split",
            ),
            (r#""data": {"train": ""}"#, "data.train: is empty"),
        ];
        for (text, start) in cases {
            let found = keys(text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(start), "{found:?}");
        }
    }
}
