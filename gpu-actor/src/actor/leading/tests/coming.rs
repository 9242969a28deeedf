//! Jobs on their way to the lead.

use super::super::coming::{AT_ONCE, GATHERING};
use super::*;

#[test]
fn co_a_job_that_the_store_does_not_give_keeps_none_from_training() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    let late = JobId(2);
    office.store.shut("slow");
    let orders = vec![
        office.long_order(JOB, 3, "rows"),
        office.long_order(late, 40, "slow"),
    ];
    leading.obey(Command::Admit(orders)).unwrap();
    leading
        .obey(Command::Act(late, shared::wire::order::JobAction::Pause))
        .unwrap();
    turn_until(&mut leading, "the other job is here", || {
        office.told(|notice| matches!(notice, JobNotice::Admitted { .. }))
    });
    for _ in 0..9 {
        leading.turn().unwrap();
    }
    assert_eq!(office.count(is_step), 0, "it waits for who came with it");
    office.pass(GATHERING);
    turn_until(&mut leading, "the other job trains", || {
        office.told(|notice| matches!(notice, JobNotice::Exported { .. }))
    });
    let of_late = |event: &Event| matches!(event, Event::Job(_, job, ..) if *job == late);
    assert_eq!(office.count(of_late), 0);
    // CO-3
    leading.obey(drain(2)).unwrap();
    office.store.open();
    let looked = leading.inside.looked.recv_timeout(PATIENCE).unwrap();
    leading.outside.looks.send(looked).unwrap();
    turn_until(&mut leading, "it is drained", || {
        !office.drained().is_empty()
    });
    assert_eq!(office.count(of_late), 0);
    // CO-2
    leading.obey(Command::Undrain).unwrap();
    let paused = |event: &Event| matches!(event, Event::Job(_, job, _, JobNotice::Paused { step: 0..=1 }) if *job == late);
    turn_until(&mut leading, "it comes, and halts", || {
        office.count(paused) == 1
    });
    let admitted = |event: &Event| {
        of_late(event) && matches!(event, Event::Job(.., JobNotice::Admitted { .. }))
    };
    assert_eq!(office.count(admitted), 1);
}

#[test]
fn co_4_jobs_that_are_ordered_together_begin_together() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    let most = AT_ONCE as u64;
    let order = |job: u64| {
        let key = if job.is_multiple_of(2) {
            "slow"
        } else {
            "rows"
        };
        office.long_order(JobId(job), 40, &format!("{key}{job}"))
    };
    let orders = (1..=2 * most).map(order).collect();
    office.store.shut("slow");
    leading.obey(Command::Admit(orders)).unwrap();
    let admitted = |event: &Event| matches!(event, Event::Job(.., JobNotice::Admitted { .. }));
    // CO-1: who does not come keeps from being looked for only as many as are looked for at once.
    turn_until(&mut leading, "those that come are here", || {
        office.count(admitted) as u64 == most
    });
    assert_eq!(leading.coming.looking.len(), AT_ONCE);
    assert_eq!(office.count(is_step), 0);
    office.store.open();
    turn_until(&mut leading, "a step is taken", || {
        office.count(is_step) > 0
    });
    assert_eq!(office.count(admitted) as u64, 2 * most);
    let told = office.told.lock().unwrap();
    let first = told.iter().position(is_step).unwrap();
    assert!(!told.iter().skip(first).any(admitted));
    drop(told);
    // Who comes later waits for nobody, and nobody for it.
    let steps = office.count(is_step);
    office.store.shut("slow");
    leading
        .obey(Command::Admit(vec![order(2 * most + 2)]))
        .unwrap();
    turn_until(&mut leading, "the others train", || {
        office.count(is_step) > steps
    });
    office.store.open();
    turn_until(&mut leading, "it is here", || {
        office.count(admitted) as u64 == 2 * most + 1
    });
}
