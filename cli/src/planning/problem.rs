//! The planner's question, put together from the arguments of a command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coordinator::plan::profile::{Link, Profile};
use coordinator::plan::snapshot::{Options, Saturation, Snapshot, Tenant};
use shared::config::schema;
use shared::ids::JobId;
use shared::units::Micros;

use super::backbone::{self, Planned};
use super::jobs::{self, Job, Read};
use super::nodes::{self, Site};
use super::profiles;
use crate::admission;
use crate::args::{Joining, ProblemArgs};
use crate::cluster_file;
use crate::commands::cluster::look;
use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::training::job_file::Jobs;

/// A question, and what people need to read its answer.
pub(crate) struct Problem {
    /// What the planner is asked.
    pub(crate) snapshot: Snapshot,
    /// The jobs, by the id that the plan knows them by.
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// What had to be assumed.
    pub(crate) assumed: Vec<String>,
    /// What the backbone is called.
    pub(crate) model: String,
}

/// Reads jobs, model, nodes and profiles.
///
/// # Errors
/// What each says.
pub(crate) fn of(args: &ProblemArgs, session: &Session<'_>) -> Result<Problem, Failure> {
    let read: Vec<Profile> = args
        .profile
        .iter()
        .map(|file| profiles::read(file))
        .collect::<Result<_, _>>()?;
    let file = args.jobs.as_deref().map(Jobs::read).transpose()?;
    let planned = model(args, file.as_ref(), session)?;
    let added = args
        .max_added_latency
        .map(|percent| 10 * u64::from(percent));
    let Read { jobs, assumed } = match &file {
        Some(file) => jobs::of(&file.file.jobs, &file.folder, &planned, args.length, added)?,
        None => jobs::example(&planned, args.length, added)?,
    };
    let site = if args.cluster_nodes {
        let nodes = session.with_cluster(&args.cluster, look::all_nodes)?;
        nodes::of_cluster(&nodes, &read)
    } else {
        match &args.nodes {
            Some(text) => nodes::given(text, &read)?,
            None => nodes::this_machine(&read)?,
        }
    };
    let file_says = if args.cluster_nodes && args.saturation.is_none() {
        let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
        Some(loaded.config.plan.saturation)
    } else {
        None
    };
    let options = Options {
        stages: args.stages,
        replicas: args.replicas,
        saturation: saturation(args.saturation, file_says),
        tokens_per_pass: tokens_per_pass(file.as_ref()),
        ..Options::default()
    };
    let jobs: BTreeMap<JobId, Job> = (1..).map(JobId).zip(jobs).collect();
    let snapshot = snapshot(&planned, site, &jobs, options);
    Ok(Problem {
        snapshot,
        jobs,
        assumed,
        model: planned.name,
    })
}

/// Rows of a pass, by the file's engine or its default.
fn tokens_per_pass(file: Option<&Jobs>) -> u64 {
    match file {
        Some(file) => file.file.engine.tokens_per_pass as u64,
        None => Options::default().tokens_per_pass,
    }
}

/// As it is asked, else as the file of the cluster says, where one is meant.
fn saturation(asked: Option<Joining>, file: Option<schema::Saturation>) -> Saturation {
    match (asked, file) {
        (Some(joining), _) => joining.rule(),
        (None, Some(written)) => admission::rule(written),
        (None, None) => Saturation::NO_LOSS,
    }
}

fn model(
    args: &ProblemArgs,
    file: Option<&Jobs>,
    session: &Session<'_>,
) -> Result<Planned, Failure> {
    let (name, base) = match (&args.model, file) {
        (Some(name), _) => (name.clone(), PathBuf::new()),
        (None, Some(file)) => (file.file.model.clone(), file.model_folder.clone()),
        (None, None) if args.cluster_nodes => {
            let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
            (loaded.config.model.path.clone(), loaded.folder)
        }
        (None, None) => {
            let message = "neither a file of jobs nor --model says which backbone is meant";
            return Err(Failure::new(Exit::Usage, message)
                .hint("spotmux plan --model llama-3-70b --nodes 8xh100"));
        }
    };
    backbone::look(&name, &base, args.weights, session.settings)
}

/// A question about these jobs on these nodes.
pub(crate) fn snapshot(
    planned: &Planned,
    site: Site,
    jobs: &BTreeMap<JobId, Job>,
    options: Options,
) -> Snapshot {
    let link = |name: &str| {
        let links = site
            .profiles
            .values()
            .filter_map(|profile| profile.link(name));
        // The slowest of what the devices say.
        links.min_by_key(|link| link.bytes_per_second).cloned()
    };
    let between = link("between").unwrap_or_else(Link::assumed);
    Snapshot {
        model: planned.shape.clone(),
        blocks: planned.blocks,
        tables: planned.tables,
        inside: link("inside").unwrap_or_else(|| between.clone()),
        between,
        profiles: site.profiles,
        nodes: site.nodes,
        tasks: jobs
            .iter()
            .map(|(id, job)| (*id, job.task.clone()))
            .collect(),
        tenants: BTreeMap::from([("local".to_owned(), Tenant::default())]),
        options,
        now: Micros(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joins_is_as_asked_or_as_the_clusters_file_says() {
        let off = schema::Saturation::Off;
        assert_eq!(saturation(None, Some(off)), Saturation::Off);
        let asked = Some(Joining::NoLoss);
        assert_eq!(saturation(asked, Some(off)), Saturation::NO_LOSS);
        assert_eq!(saturation(None, None), Saturation::NO_LOSS);
    }
}
