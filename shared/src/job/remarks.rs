//! What a job says that has no effect: told, not refused.

use super::check::Problem;
use super::{JobSpec, OptimizerKind, OptimizerSpec, ScheduleKind};

impl JobSpec {
    /// Lists keys that change nothing as the job stands, for this many training rows, held-out ones and
    /// optimizer steps of the whole job.
    #[must_use]
    pub fn remarks(&self, rows: usize, held_out: usize, steps: u64) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut tell = |idle: bool, key, why: &str| {
            if idle {
                let message = format!("has no effect: {why}");
                found.push(Problem { key, message });
            }
        };
        let (eval, optimizer, train) = (&self.eval, &self.optimizer, &self.train);
        if held_out == 0 {
            let why = "no row is held out (data.eval, data.eval_split)";
            tell(eval.every_steps.is_some(), "eval.every_steps", why);
            tell(eval.min_delta > 0.0, "eval.min_delta", why);
        } else if eval.patience.is_none() {
            let why = "it counts only with eval.patience";
            tell(eval.min_delta > 0.0, "eval.min_delta", why);
        } else {
            let never_between = eval.every_steps.is_none_or(|every| every >= steps);
            let why = "held-out rows are measured at the start and the end only (eval.every_steps)";
            tell(never_between, "eval.patience", why);
        }
        let usual = OptimizerSpec::default();
        match optimizer.kind {
            OptimizerKind::Sgd => {
                let why = "sgd has momentum only";
                let (betas, epsilon) = (&optimizer.betas, optimizer.epsilon);
                tell(*betas != usual.betas, "optimizer.betas", why);
                tell(
                    epsilon.to_bits() != usual.epsilon.to_bits(),
                    "optimizer.epsilon",
                    why,
                );
            }
            OptimizerKind::AdamW => {
                let why = "adamw has betas; momentum is of sgd";
                tell(optimizer.momentum > 0.0, "optimizer.momentum", why);
            }
        }
        let constant = self.schedule.kind == ScheduleKind::Constant;
        let why = "a constant schedule does not fall";
        tell(
            constant && self.schedule.min_ratio > 0.0,
            "schedule.min_ratio",
            why,
        );
        let samples = train.batch_size.saturating_mul(train.accumulation);
        if samples > rows && (*train != Default::default()) {
            let message =
                format!("a step takes up to {samples} samples, there are {rows}: it takes those");
            let key = "train.batch_size";
            found.push(Problem { key, message });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn keys(more: &str, held_out: usize) -> Vec<&'static str> {
        let text = format!(
            r#"{{"name": "a", "adapter": {{"method": "bitfit"}}, "data": {{"train": "a.jsonl"}}{more}}}"#
        );
        let spec: JobSpec = serde_json::from_str(&text).unwrap();
        let remarks = spec.remarks(10, held_out, 20).into_iter();
        remarks.map(|remark| remark.key).collect()
    }

    #[test]
    fn what_changes_nothing_is_told() {
        assert!(keys("", 0).is_empty());
        let eval = r#", "eval": {"every_steps": 5, "min_delta": 0.1}"#;
        assert_eq!(keys(eval, 0), ["eval.every_steps", "eval.min_delta"]);
        assert_eq!(keys(eval, 1), ["eval.min_delta"]);
        // Of nothing but a first and a last evaluation a job cannot stop in between.
        for (every, idle) in [
            ("", true),
            (r#""every_steps": 20, "#, true),
            (r#""every_steps": 19, "#, false),
        ] {
            let patience = format!(r#", "eval": {{{every}"patience": 2}}"#);
            assert_eq!(
                keys(&patience, 1).contains(&"eval.patience"),
                idle,
                "{every}"
            );
        }
        let sgd = r#", "optimizer": {"kind": "sgd", "betas": [0.8, 0.9], "epsilon": 1e-6}"#;
        assert_eq!(keys(sgd, 0), ["optimizer.betas", "optimizer.epsilon"]);
        let momentum = r#", "optimizer": {"momentum": 0.9}"#;
        assert_eq!(keys(momentum, 0), ["optimizer.momentum"]);
        let floor = r#", "schedule": {"min_ratio": 0.1}"#;
        assert_eq!(keys(floor, 0), ["schedule.min_ratio"]);
        let batch = r#", "train": {"batch_size": 11}"#;
        assert_eq!(keys(batch, 0), ["train.batch_size"]);
    }
}
