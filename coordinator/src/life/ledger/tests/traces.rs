//! What jobs leave behind: their names, and what is counted and charged.

use super::*;

#[test]
fn lg_3_a_job_that_ended_gives_its_name_away_and_keeps_its_id() {
    let cancelled = JobNotice::Cancelled { step: 2 };
    let exported = JobNotice::Exported { files: Vec::new() };
    // Its end, and whether the same content is the same job then.
    for (end, known) in [(cancelled, false), (exported, true)] {
        let (mut ledger, first) = running();
        ledger.apply(Micros(4), &heard(first, end));
        match ledger.submit(&submission("a", 2), "8", &shape(), 9) {
            Ok(Submitted::Known(job)) => assert!(known && job == first),
            Ok(Submitted::New(..)) => assert!(!known),
            Err(refusal) => panic!("{refusal}"),
        }
        let Ok(Submitted::New(job, accepted)) =
            ledger.submit(&submission("a", 3), "8", &shape(), 9)
        else {
            panic!("the name is free");
        };
        assert_eq!(job, first.next());
        ledger.apply(Micros(5), &Change::Submitted { job, accepted });
        let by_name = JobRef::Name(JobName::new("a").unwrap());
        assert_eq!(ledger.find(&by_name).unwrap().id, job, "the newest");
        assert_eq!(ledger.find(&JobRef::Id(first)).unwrap().durable, 2);
        // One that has not ended keeps it.
        let refused = ledger
            .submit(&submission("a", 4), "9", &shape(), 9)
            .unwrap_err();
        assert!(refused.message.contains("spotmux cancel j2"), "{refused}");
    }
}

#[test]
fn lg_5_moves_are_counted_apart() {
    let (mut ledger, job) = running();
    ledger.apply(Micros(3), &mended());
    let admitted = heard(job, JobNotice::Admitted { step: 2, total: 9 });
    ledger.apply(Micros(4), &admitted);
    let counts = |ledger: &Ledger| {
        let job = ledger.get(job).unwrap();
        (job.moves, job.recoveries)
    };
    assert_eq!(counts(&ledger), (1, 0));
    let reason = "lost".into();
    ledger.apply(Micros(5), &Change::Broken { replica: 0, reason });
    ledger.apply(Micros(5), &mended());
    ledger.apply(Micros(6), &admitted);
    assert_eq!(counts(&ledger), (1, 1));
    ledger.apply(Micros(7), &mended());
    ledger.apply(Micros(8), &admitted);
    assert_eq!(counts(&ledger), (2, 1));
}

#[test]
fn lg_6_a_step_is_charged_once_and_only_waiting_is_waiting() {
    let (mut ledger, job) = running();
    assert_eq!(ledger.served()[""], 2);
    // It ran for long, and its replica ends: its wait begins now.
    let hour = Micros(3_600_000_000);
    let mut layout = Layout::default();
    layout.epoch.0 = 2;
    layout.replicas.insert(1, Standing::default());
    ledger.apply(hour, &Change::InForce { layout });
    let waited = |ledger: &Ledger, at: u64| {
        let at = hour.plus(Micros(at));
        ledger.get(job).unwrap().waiting.so_far(at)
    };
    assert_eq!(waited(&ledger, 5), Micros(5));
    // Paused, it does not wait; tried without a step, it waits on.
    for (at, change) in [
        (10, Change::PauseAsked { job }),
        (1_000, Change::ResumeAsked { job }),
        (1_005, Change::Placed { job, replica: 1 }),
        (
            2_000,
            heard(
                job,
                JobNotice::Refused(Reason {
                    class: ReasonClass::System,
                    message: "no".into(),
                }),
            ),
        ),
    ] {
        ledger.apply(hour.plus(Micros(at)), &change);
    }
    assert_eq!(waited(&ledger, 2_001), Micros(16));
    // What is taken again is charged before.
    for change in [
        Change::Placed { job, replica: 1 },
        heard(job, JobNotice::Admitted { step: 2, total: 9 }),
        heard(job, step(2)),
        heard(job, step(3)),
    ] {
        ledger.apply(hour.plus(Micros(3_000)), &change);
    }
    assert_eq!(ledger.served()[""], 3);
    let reason = "lost".into();
    ledger.apply(hour, &Change::Broken { replica: 1, reason });
    for change in [
        heard(job, JobNotice::Admitted { step: 2, total: 9 }),
        heard(job, step(3)),
    ] {
        ledger.apply(hour, &change);
    }
    assert_eq!(ledger.served()[""], 3, "step 3 was charged");
}

#[test]
fn lg_6_a_snapshot_of_before_is_charged_when_a_leadership_begins() {
    let (ledger, job) = running();
    let mut text = serde_json::to_value(&ledger).unwrap();
    text.as_object_mut().unwrap().remove("served");
    let of_job = text["jobs"]["1"].as_object_mut().unwrap();
    for key in ["tenant", "charged", "waiting", "moves", "lost"] {
        of_job.remove(key).unwrap();
    }
    let mut before: Ledger = serde_json::from_value(text).unwrap();
    assert!(before.served().is_empty());
    let term = shared::ids::Term(2);
    for _ in 0..2 {
        before.apply(Micros(3), &Change::Began { term });
    }
    assert_eq!(before.served(), ledger.served());
    assert_eq!(before.get(job), ledger.get(job));
}
