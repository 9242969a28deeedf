//! Jobs whose numbers stop being finite, and what is left of them.

use super::*;

/// The order for a job that breaks once it took a step.
fn breaking(office: &Office) -> JobOrder {
    let order = office.long_order(JOB, 40, "rows");
    let mut spec: shared::job::JobSpec = serde_json::from_str(&order.spec).unwrap();
    spec.optimizer.learning_rate = 1e30;
    JobOrder {
        spec: serde_json::to_string(&spec).unwrap(),
        ..order
    }
}

fn is_aside(event: &Event) -> bool {
    matches!(event, Event::Job(.., JobNotice::Quarantined { .. }))
}

/// The step after which the job was set aside.
fn broke_after(office: &Office) -> Option<u64> {
    let told = office.told.lock().unwrap();
    told.iter().find_map(|event| match event {
        Event::Job(.., JobNotice::Quarantined { step, .. }) => Some(*step),
        _ => None,
    })
}

#[test]
fn as_1_the_last_good_state_is_durable_before_the_job_is_told_as_broken() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, breaking(&office));
    turn_until(&mut leading, "it breaks", || office.count(is_aside) > 0);
    let step = broke_after(&office).unwrap();
    assert!(step > 0, "a state of no step is nothing to keep");
    let told = office.told.lock().unwrap();
    let at = |what: &dyn Fn(&Event) -> bool| told.iter().position(what);
    let durable = |event: &Event| matches!(event, Event::Job(.., JobNotice::Durable { step: kept, .. }) if *kept == step);
    assert!(at(&durable).unwrap() < at(&is_aside).unwrap());
    drop(told);
    assert_eq!(leading.lead.progress(&name(JOB)), None, "it left");
    assert!(leading.ending.is_empty());
}

#[test]
fn as_1_a_store_that_does_not_answer_does_not_hide_that_a_job_broke() {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    admit(&office, &mut leading, breaking(&office));
    office.store.shut("jobs/");
    for _ in 0..100 {
        leading.turn().unwrap();
    }
    assert!(!leading.aside.is_empty() && office.count(is_aside) == 0);
    office.pass(STORE_PATIENCE);
    leading.turn().unwrap();
    assert_eq!(office.count(is_aside), 1);
    let (step, own) = (broke_after(&office).unwrap(), name(JOB));
    office.store.open();
    turn_until(&mut leading, "it is stored, and leaves", || {
        office
            .told(|notice| matches!(notice, JobNotice::Durable { step: kept, .. } if *kept == step))
    });
    for _ in 0..100 {
        let bell = leading.lead.bell();
        let heard = bell.heard();
        leading.turn().unwrap();
        if leading.lead.progress(&own).is_none() {
            break;
        }
        let _ = bell.wait(heard, Duration::from_millis(50));
    }
    assert_eq!(leading.lead.progress(&own), None, "it left");
    assert_eq!(office.count(is_aside), 1);
}

/// A job that breaks under this rate after some steps, of which each state is stored and one is kept: the step after which it
/// broke, and what was told as good before that.
fn broken_by(rate: f64) -> (u64, Option<u64>) {
    let mut office = Office::open();
    let lead = office.lead.take().unwrap();
    let mut leading = Leading::new(lead, &office.around);
    let mut order = breaking(&office);
    let mut spec: shared::job::JobSpec = serde_json::from_str(&order.spec).unwrap();
    spec.optimizer.learning_rate = rate;
    (spec.checkpoint.every_steps, spec.checkpoint.keep_last) = (Some(1), 1);
    order.spec = serde_json::to_string(&spec).unwrap();
    admit(&office, &mut leading, order);
    turn_until(&mut leading, "it breaks", || office.count(is_aside) > 0);
    assert!(leading.ending.is_empty() && leading.done.is_empty());
    let told = office.told.lock().unwrap();
    let aside = told.iter().position(is_aside).unwrap();
    let good = told.iter().take(aside).find_map(|event| match event {
        Event::Job(.., JobNotice::Salvaged { step, files }) => Some((*step, files.clone())),
        _ => None,
    });
    for (key, sha256, _) in good.iter().flat_map(|(_, files)| files) {
        let bytes = office.store.inner.get(key).unwrap();
        assert_eq!(seal::hash(&bytes), *sha256);
    }
    drop(told);
    (broke_after(&office).unwrap(), good.map(|(step, _)| step))
}

#[test]
fn as_2_the_adapter_of_the_newest_good_state_is_written_before_the_job_is_told_as_broken() {
    // The first of these that it takes more than one step with.
    let rates = [1e30, 1e8, 1e7, 1e6, 3e5, 1e5, 3e4, 1e4];
    let mut broken = rates.into_iter().map(broken_by);
    let (broke, good) = broken.find(|(_, good)| good.is_some()).unwrap();
    assert!(broke > 1);
    assert_eq!(good, Some(broke - 1));
    // The state of the step at which it broke is the only one.
    assert_eq!(broken_by(1e30), (1, None));
}
