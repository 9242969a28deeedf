//! A job whose step is many passes long, alone on the replica: orders are heard in the middle of its step.

use super::super::again::HASTE;
use super::*;

const SMALL: JobId = JobId(2);
/// Sequences of a step, each of which fills a pass.
const SEQUENCES: usize = 24;

/// The order for a job that stores no state by itself, and whose whole step is one turn.
fn giant(office: &Office) -> JobOrder {
    office.order_of(JOB, 50, "rows", &[600; SEQUENCES])
}

fn steps_of(office: &Office, job: JobId) -> usize {
    let of =
        |event: &Event| is_step(event) && matches!(event, Event::Job(_, own, ..) if *own == job);
    office.count(of)
}

/// A lead in the middle of the second step of a giant, with more planned behind it.
fn in_the_middle<'a>(office: &'a Office, lead: Lead) -> Leading<'a> {
    let mut leading = Leading::new(lead, &office.around);
    admit(office, &mut leading, giant(office));
    turn_until(&mut leading, "it takes a step", || {
        steps_of(office, JOB) == 1
    });
    for _ in 0..4 {
        leading.turn().unwrap();
    }
    assert!(leading.lead.is_under_way() && steps_of(office, JOB) == 1);
    leading
}

/// A turn, and time for the store.
fn patient_turn(leading: &mut Leading<'_>) {
    let bell = leading.lead.bell();
    let heard = bell.heard();
    leading.turn().unwrap();
    let _ = bell.wait(heard, Duration::from_millis(20));
}

#[test]
fn co_5_a_job_that_comes_in_the_middle_of_a_long_step_trains_before_that_ends() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = in_the_middle(&office, lead);
    let order = office.long_order(SMALL, 9, "small");
    leading.obey(Command::Admit(vec![order])).unwrap();
    let looked = leading.inside.looked.recv_timeout(PATIENCE).unwrap();
    leading.outside.looks.send(looked).unwrap();
    turn_until(&mut leading, "it takes a step", || {
        steps_of(&office, SMALL) > 0
    });
    assert_eq!(steps_of(&office, JOB), 1);
    // From then on it takes one for each turn of the giant.
    turn_until(&mut leading, "the giant takes its step", || {
        steps_of(&office, JOB) == 2
    });
    assert!(steps_of(&office, SMALL) >= 3);
}

#[test]
fn co_5_while_a_job_is_looked_for_turns_are_short_and_no_longer() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = in_the_middle(&office, lead);
    let rounds_of_a_step = |leading: &mut Leading<'_>| {
        for _ in 0..2 {
            let steps = steps_of(&office, JOB);
            turn_until(leading, "the step that is begun", || {
                steps_of(&office, JOB) > steps
            });
        }
        let (before, steps) = (leading.lead.rounds(), steps_of(&office, JOB));
        turn_until(leading, "a step", || steps_of(&office, JOB) > steps);
        leading.lead.rounds() - before
    };
    assert_eq!(rounds_of_a_step(&mut leading), 1);
    office.store.shut("slow");
    let order = office.long_order(SMALL, 9, "slow");
    leading.obey(Command::Admit(vec![order])).unwrap();
    // Three sequences a turn.
    assert!(rounds_of_a_step(&mut leading) >= SEQUENCES as u64 / 3);
    office.store.open();
    let gone = |event: &Event| matches!(event, Event::Job(_, SMALL, _, JobNotice::Exported { .. }));
    turn_until(&mut leading, "it came and went", || office.count(gone) > 0);
    assert_eq!(rounds_of_a_step(&mut leading), 1);
}

#[test]
fn a_text_is_made_in_the_middle_of_a_long_step_its_own_jobs_too() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = in_the_middle(&office, lead);
    for (number, job) in [(1, None), (2, Some(JOB))] {
        leading.obey(sample(number, job, 5)).unwrap();
        let ended = |event: &Event| *event == Event::SampleEnded(number, Ok(()));
        turn_until(&mut leading, "the text ends", || office.count(ended) == 1);
        assert_eq!(steps_of(&office, JOB), 1);
    }
    turn_until(&mut leading, "it goes on", || steps_of(&office, JOB) == 3);
}

#[test]
fn tx_3_a_text_ends_with_the_step_whose_end_a_drain_does_not_leave_to_wait() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = in_the_middle(&office, lead);
    leading.obey(sample(1, Some(JOB), 40)).unwrap();
    turn_until(&mut leading, "it is begun", || office.count(is_piece) > 0);
    leading.obey(drain(2)).unwrap();
    let ended = |event: &Event| matches!(event, Event::SampleEnded(1, Err(why)) if why.contains("ask again"));
    assert_eq!(office.count(ended), 1);
    turn_until(&mut leading, "it is drained", || {
        !office.drained().is_empty()
    });
}

#[test]
fn in_a_drain_the_last_whole_state_is_durable_before_the_step_under_way_ends() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = in_the_middle(&office, lead);
    let durable = |office: &Office, step: u64| {
        office
            .told(|notice| matches!(notice, JobNotice::Durable { step: kept, .. } if *kept == step))
    };
    leading.obey(hasty_drain(2)).unwrap();
    for _ in 0..2 {
        patient_turn(&mut leading);
    }
    assert!(!durable(&office, 1), "a step that ends soon is waited for");
    office.pass(HASTE);
    while !durable(&office, 1) {
        assert!(leading.lead.is_settling(), "the step ended first");
        patient_turn(&mut leading);
    }
    assert!(office.drained().is_empty() && steps_of(&office, JOB) == 1);
    turn_until(&mut leading, "it is drained", || {
        !office.drained().is_empty()
    });
    assert_eq!(
        (office.drained(), steps_of(&office, JOB)),
        (vec![Ok(())], 2)
    );
    assert!(durable(&office, 2));
}

#[test]
fn in_a_drain_for_which_no_machine_goes_each_state_is_stored_once() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = in_the_middle(&office, lead);
    leading.obey(drain(2)).unwrap();
    patient_turn(&mut leading);
    office.pass(HASTE);
    turn_until(&mut leading, "it is drained", || {
        !office.drained().is_empty()
    });
    let durable = |step: u64| {
        office
            .told(|notice| matches!(notice, JobNotice::Durable { step: kept, .. } if *kept == step))
    };
    assert!(!durable(1) && durable(2));
}
