//! Who may begin on a cluster: its file's profiles, bounds and weights of tenants, as the coordinator is told.

use anyhow::Context;
use coordinator::life::admission::{Admission, Levels};
use coordinator::plan::device::Device;
use coordinator::plan::profile::Profile;
use coordinator::plan::snapshot::Saturation;
use gpu_actor::model::Model;
use shared::config::load::Loaded;
use shared::config::schema;
use shared::units::Micros;

use crate::exit::{Exit, Failure, OrExit};
use crate::measuring::gather;
use crate::planning::profiles;

/// Reads the profiles that the file names.
///
/// # Errors
/// [`Exit::BadInput`] when a profile is none or of another model, or a weight is none.
pub(crate) fn of(loaded: &Loaded, model: &Model) -> Result<Admission, Failure> {
    let plan = &loaded.config.plan;
    let read = |path: &str| profiles::read(&loaded.path_of(path));
    let (blocks, tables) = gather::kept(model);
    let profiles: Vec<Profile> = plan
        .profiles()
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()?;
    for profile in &profiles {
        // A profile of another model is told when the coordinator starts, and not when a job waits.
        Device::new(profile, &model.shape, blocks, tables)
            .with_context(|| format!("plan.profile: {}", profile.device))
            .or_exit(Exit::BadInput)?;
    }
    Ok(Admission {
        profiles,
        blocks,
        tables,
        saturation: rule(plan.saturation),
        max_added_latency: Micros::of_millis(plan.max_added_latency_ms),
        patience: Micros(plan.patience_minutes.saturating_mul(60_000_000)),
        tenants: plan
            .weights()
            .map_err(|problem| Failure::new(Exit::BadInput, format!("plan.tenants: {problem}")))?,
        tokens_per_pass: plan.tokens_per_pass,
        levels: Levels {
            fuse: plan.fuse,
            order: plan.order,
            align: plan.align,
        },
    })
}

/// The rule of saturation as the planner has it.
pub(crate) fn rule(written: schema::Saturation) -> Saturation {
    match written {
        schema::Saturation::NoLoss => Saturation::NO_LOSS,
        schema::Saturation::Growth => Saturation::GROWTH,
        schema::Saturation::Off => Saturation::Off,
    }
}
