//! Any split of a pass between jobs ends, under a watchdog: one row of two tokens beside rows of thousands.
//!
//! Public bug: punica-ai/punica PR #35, where a grouped kernel hung on uneven segments.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use system_tests::methods;

use crate::plan::{Plan, plain};
use crate::run::{Manner, alone, assert_same, together};
use crate::{cases, tiny};

/// Far more than any of these runs needs, and less than a reader waits for a hung suite.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Runs work that must end.
fn watched(what: String, work: impl FnOnce() + Send + 'static) {
    let (done, end) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match end.recv_timeout(WATCHDOG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end after {WATCHDOG:?}: {what}"),
        // A failure of the work is told as its own.
        _ => worker
            .join()
            .unwrap_or_else(|failure| std::panic::resume_unwind(failure)),
    }
}

/// Jobs of one row each; those that are done leave the others' later passes without a row of theirs.
fn plans(lengths: &[usize]) -> Vec<Plan> {
    let methods = methods::every();
    let plan = |(index, &length): (usize, &usize)| {
        let mut plan = plain(
            &format!("job-{index}"),
            methods[index % methods.len()].clone(),
        );
        plan.lengths = vec![length];
        plan.spec.train.steps = Some(1 + index as u64 % 2);
        plan
    };
    lengths.iter().enumerate().map(plan).collect()
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn any_split_of_tokens_between_jobs_completes(
        lengths in proptest::collection::vec(prop_oneof![3 => 2..4usize, 1 => 4..70usize, 1 => 600..1200usize], 1..14),
        threads in 1..4usize,
        tokens_per_pass in proptest::sample::select(vec![1, 129, 5000]),
    ) {
        watched(format!("{lengths:?}"), move || {
            together(&tiny::llama(), &plans(&lengths), &Manner::new(threads, tokens_per_pass));
        });
    }
}

#[test]
fn two_tokens_beside_thousands_complete_as_alone() {
    watched("2 beside 2000".into(), || {
        let model = tiny::llama();
        let plans = plans(&[2, 2000, 2, 3, 1999, 2]);
        let records = together(&model, &plans, &Manner::new(2, 10_000));
        for plan in &plans {
            let name = &plan.spec.name;
            let record = alone(&model, plan, &Manner::new(1, 100));
            assert_same(&record, &records[name], name.as_str());
        }
    });
}
