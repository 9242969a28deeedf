//! Every word survives its way, and batches are checked.

#![allow(clippy::unwrap_used, reason = "tests")]

use shared::model::Projection;
use shared::wire::codec;

use super::*;
use crate::batch::JobEntry;
use crate::stage::agreement::{Broken, Share};
use crate::stage::outcome::{BadRow, Origin, SequenceLoss};
use crate::stage::partial::Of;
use data::rows::TokenRow;

fn report() -> Report {
    Report {
        squares: vec![(3, f64::INFINITY)],
        shares: vec![Share {
            layer: 2,
            values: vec![0.5; 2],
        }],
        broken: Some(Broken {
            piece: None,
            what: "loss".into(),
        }),
    }
}

fn planned(pass: Pass) -> Word {
    let mut batch = Batch::default();
    let entry = JobEntry {
        slot: 1,
        prompt_tokens: 2,
        prefix_tokens: 0,
        first_block: 0,
        first_sequence: 0,
        last: true,
        step: 4,
        trained_tokens: 3,
    };
    batch.push(entry, &[&TokenRow::new(vec![1, 2, 3], vec![-100, 2, 3])]);
    Word::Plan(Box::new(Planned {
        number: 7,
        pass,
        batch,
        goals: vec![StepGoal {
            slot: 1,
            step: 4,
            learning_rate: 1e-3,
            keep: true,
            shard: Some(Shard {
                blocks: 1,
                idle: false,
            }),
        }],
    }))
}

fn attach(source: Source) -> Word {
    Word::Attach(Box::new(Attach {
        slot: 0,
        job: JobName::new("j12").unwrap(),
        spec: "{}".into(),
        source,
        replicas: vec![1, 0],
    }))
}

/// Words between replicas.
fn across() -> [Word; 6] {
    let job = JobName::new("a").unwrap();
    let Word::Attach(enlist) = attach(Source::Fresh {
        init_tokens: Vec::new(),
    }) else {
        unreachable!()
    };
    let Word::Plan(plan) = planned(Pass::Train) else {
        unreachable!()
    };
    let head = PartialHead {
        of: Of::Prefix,
        start: 3,
        first: 4,
        level: 2,
        len: 5,
    };
    [
        Word::Enlist(enlist),
        Word::Enlisted {
            job: job.clone(),
            outcome: Err("a".into()),
        },
        Word::Assist(Box::new(Assist {
            job: job.clone(),
            ticket: 3,
            pass: plan.pass,
            chain: vec![plan.batch],
            goal: plan.goals.first().copied(),
        })),
        Word::Found {
            ticket: 3,
            outcome: JobOutcome {
                slot: 1,
                block_losses: vec![0.25],
                sequences: Vec::new(),
                correct: 2,
                bad: None,
            },
        },
        Word::Dismiss { job: job.clone() },
        Word::Sums(Box::new(Sums {
            job,
            step: 2,
            heads: vec![head],
            losses: LossPartials {
                sums: vec![(4, 2, 0.5)],
                bad: None,
            },
        })),
    ]
}

/// A format without names of fields carries every word.
#[test]
fn words_survive_a_format_that_does_not_describe_itself() {
    let outcome = JobOutcome {
        slot: 1,
        block_losses: vec![0.25],
        sequences: vec![SequenceLoss {
            sum: 1.0,
            tokens: 3,
        }],
        correct: 2,
        bad: Some(BadRow {
            sequence: 1,
            row: 2,
            origin: Some(Origin::Projection {
                layer: 3,
                projection: Projection::Down,
                row: 1,
            }),
        }),
    };
    let part = PartRef {
        first_layer: 0,
        end_layer: 2,
        key: "jobs/a".into(),
        sha256: "00".into(),
        bytes: 9,
    };
    let sample = Pass::Sample {
        text: 3,
        choose: Some((Sampling::default(), 1)),
    };
    let matter = (1, 4);
    let (job, step, slot) = (JobName::new("a").unwrap(), 4, 2);
    let words = [
        planned(Pass::Train),
        planned(Pass::Evaluate),
        planned(sample),
        attach(Source::Fresh {
            init_tokens: vec![1],
        }),
        attach(Source::Stored {
            manifest: "{}".into(),
        }),
        Word::Detach { slot },
        Word::Keep { slot, step },
        Word::Forget { text: 1 },
        Word::Agreement {
            matter,
            agreement: Agreement::of([report()]),
            against: report().broken,
        },
        Word::Close,
        Word::Ahead { passes: vec![3, 1] },
        Word::Report {
            matter,
            report: report(),
        },
        Word::Verdict {
            matter,
            verdict: None,
        },
        Word::Outcome {
            number: 7,
            outcomes: vec![outcome],
        },
        Word::Chosen {
            number: 7,
            token: Err("a".into()),
        },
        Word::Part {
            job,
            step,
            outcome: Ok(part),
        },
        Word::Beyond {
            job: JobName::new("a").unwrap(),
            step,
        },
        Word::Attached { slot },
        Word::Refused {
            slot,
            problem: "a".into(),
        },
    ];
    let limits = codec::Limits::default();
    let mut names = std::collections::BTreeSet::new();
    for word in words.into_iter().chain(across()) {
        let bytes = codec::frame(&word, &limits).unwrap();
        let read: Word = codec::message(&bytes[codec::HEAD..], &limits).unwrap();
        assert_eq!(word, read);
        names.insert(word.name());
    }
    assert_eq!(names.len(), 22);
}

#[test]
fn a_batch_of_another_process_is_checked_before_it_passes() {
    let Word::Plan(planned) = planned(Pass::Train) else {
        unreachable!()
    };
    let sound = planned.batch;
    assert_eq!(sound.fault(4), None);
    assert!(sound.fault(3).unwrap().contains("vocabulary"));
    type Change = fn(&mut Batch);
    let changes: [Change; 7] = [
        |batch| batch.positions.truncate(1),
        |batch| *batch = Batch::default(),
        |batch| batch.jobs[0].rows.end += 1,
        |batch| batch.jobs[0].blocks[0].end -= 1,
        |batch| batch.sequences[0].job = 1,
        |batch| batch.sequences[0].rows.start = 1,
        |batch| batch.targets[3] = 9,
    ];
    for change in changes {
        let mut batch = sound.clone();
        change(&mut batch);
        assert!(batch.fault(4).is_some(), "{batch:?}");
    }
}
