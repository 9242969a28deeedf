//! A job with a number that is none, and why it is set aside.

use std::sync::Arc;

use gpu_actor::model::Model;
use gpu_actor::peft::layout::LinearSite;
use gpu_actor::train::event::Event;
use shared::job::{AdapterSpec, BitFitSpec, Targets};
use shared::model::Projection;

use crate::plan::{Plan, plain};
use crate::run::{Manner, admit};

/// A job that adds a bias everywhere.
pub(crate) fn biased() -> Plan {
    let targets = Targets::Group("all-linear".into());
    plain("job", AdapterSpec::BitFit(BitFitSpec { targets }))
}

/// Why such a job is set aside that adds a number which is none behind one projection of one layer.
pub(crate) fn reason(
    model: &Arc<Model>,
    plan: &Plan,
    manner: &Manner,
    (layer, p): (usize, Projection),
) -> String {
    let mut session = manner.session(model);
    admit(&mut session, model, plan, None);
    let slot = session.slot(&plan.spec.name).unwrap();
    let adapter = session.stage_mut().adapter_mut(slot).unwrap();
    let Some(LinearSite::Bias(range)) = adapter.layout.layers[layer].linear[p as usize].clone()
    else {
        panic!("BitFit adds a bias everywhere");
    };
    adapter.values[range.start] = f32::NAN;
    session.stage_mut().derive(slot);
    let told = session.round().into_iter().find_map(|event| match event {
        Event::Quarantined { reason, .. } => Some(reason),
        _ => None,
    });
    told.unwrap()
}
