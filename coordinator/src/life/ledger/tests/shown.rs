//! What of jobs is shown: progress, what was charged, places in the queue.

use super::*;

#[test]
fn after_a_loss_progress_is_of_the_steps_kept_and_what_was_charged_stays() {
    let (mut ledger, job) = running();
    for at in 3..=7 {
        ledger.apply(Micros(2), &heard(job, step(at)));
    }
    let told = |ledger: &Ledger| {
        let view = ledger.view(ledger.get(job).unwrap());
        (view.step, view.tokens, ledger.served()[""])
    };
    assert_eq!(told(&ledger), (7, 7, 7));
    let reason = "lost".into();
    ledger.apply(Micros(3), &Change::Broken { replica: 0, reason });
    ledger.apply(Micros(3), &mended());
    let admitted = JobNotice::Admitted { step: 2, total: 9 };
    ledger.apply(Micros(4), &heard(job, admitted));
    assert_eq!(told(&ledger), (2, 2, 7), "LG-6");
    ledger.apply(Micros(5), &heard(job, step(3)));
    assert_eq!(told(&ledger), (3, 3, 7), "LG-6");
    // However long the next durable state takes, little is remembered.
    for at in 4..5_000 {
        ledger.apply(Micros(6), &heard(job, step(at)));
    }
    let durable = |step| {
        heard(
            job,
            JobNotice::Durable {
                step,
                bytes: Bytes(1),
            },
        )
    };
    assert!(ledger.get(job).unwrap().marks.len() <= 256);
    ledger.apply(Micros(7), &durable(4_999));
    assert_eq!(ledger.get(job).unwrap().marks.len(), 1);
}

#[test]
fn a_list_says_of_each_job_what_is_said_of_it_alone() {
    let (mut ledger, job) = running();
    let queued = ["b", "c", "d"].map(|name| submit(&mut ledger, name));
    let cancel = ledger.cancel(ledger.get(queued[1]).unwrap()).unwrap();
    ledger.apply(Micros(3), &cancel.unwrap());
    let alone: Vec<JobView> = ledger.jobs().map(|job| ledger.view(job)).collect();
    let listed: Vec<JobView> = ledger.views().map(|(_, view)| view).collect();
    assert_eq!(listed, alone);
    let places = listed.iter().map(|view| (view.id, view.queue_position));
    let wanted = [
        (job, None),
        (queued[0], Some(0)),
        (queued[1], None),
        (queued[2], Some(1)),
    ];
    assert_eq!(places.collect::<Vec<_>>(), wanted);
}
