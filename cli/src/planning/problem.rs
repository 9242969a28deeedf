//! The planner's question, put together from the arguments of a command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coordinator::plan::profile::{Link, Origin, Profile};
use coordinator::plan::snapshot::{Options, Saturation, Snapshot, Tenant};
use shared::config::load::Loaded;
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
    let cluster = match args.cluster_nodes {
        true => {
            let named = session.cluster(&args.cluster);
            Some(cluster_file::load(&named, session.settings)?)
        }
        false => None,
    };
    let cluster = cluster.as_ref();
    let read: Vec<Profile> = profile_files(args, cluster)
        .iter()
        .map(|file| profiles::read(file))
        .collect::<Result<_, _>>()?;
    let file = args.jobs.as_deref().map(Jobs::read).transpose()?;
    let Meant { name, base, note } = meant(args, file.as_ref(), cluster)?;
    let planned = backbone::look(&name, &base, args.weights, session.settings)
        .map_err(|failure| absent(failure, args))?;
    let added = args
        .max_added_latency
        .map(|percent| 10 * u64::from(percent));
    let Read { jobs, mut assumed } = match &file {
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
    assumed.extend(note);
    let measured = site.profiles.values().all(is_measured);
    let plan = cluster.map(|loaded| &loaded.config.plan);
    let options = Options {
        stages: args.stages,
        replicas: args.replicas,
        saturation: saturation(args.saturation, plan.map(|plan| plan.saturation), measured),
        tokens_per_pass: match plan {
            Some(plan) => plan.tokens_per_pass,
            None => tokens_per_pass(file.as_ref()),
        },
        fuse: plan.is_none_or(|plan| plan.fuse),
        order: plan.is_none_or(|plan| plan.order),
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

fn is_measured(profile: &Profile) -> bool {
    profile.origin == Origin::Measured
}

/// As it is asked, else as the file of the cluster says, where one is meant; a cluster asks only where all devices were measured.
fn saturation(
    asked: Option<Joining>,
    file: Option<schema::Saturation>,
    measured: bool,
) -> Saturation {
    match (asked, file) {
        (Some(joining), _) => joining.rule(),
        (None, Some(_)) if !measured => Saturation::Off,
        (None, Some(written)) => admission::rule(written),
        (None, None) => Saturation::NO_LOSS,
    }
}

/// Files of profiles: those that are named, else those of the cluster's file that are here.
fn profile_files(args: &ProblemArgs, cluster: Option<&Loaded>) -> Vec<PathBuf> {
    let Some(cluster) = cluster.filter(|_| args.profile.is_empty()) else {
        return args.profile.clone();
    };
    let named = cluster.config.plan.profiles().into_iter();
    let all = named.map(|path| cluster.path_of(path));
    all.filter(|path| path.is_file()).collect()
}

/// Which backbone is meant.
#[derive(Debug, PartialEq)]
struct Meant {
    name: String,
    /// Where its path starts.
    base: PathBuf,
    /// What is to be said of another one that a file names.
    note: Option<String>,
}

/// The one that is asked for; else that of the cluster, as its jobs get no other; else the file's.
fn meant(
    args: &ProblemArgs,
    file: Option<&Jobs>,
    cluster: Option<&Loaded>,
) -> Result<Meant, Failure> {
    let theirs = cluster.map(|loaded| loaded.config.model.path.as_str());
    let ours = file.map(|jobs| jobs.file.model.as_str());
    let (name, base) = match (&args.model, cluster, file) {
        (Some(name), ..) => (name.clone(), PathBuf::new()),
        (None, Some(loaded), _) => (loaded.config.model.path.clone(), loaded.folder.clone()),
        (None, None, Some(file)) => (file.file.model.clone(), file.model_folder.clone()),
        (None, None, None) => {
            let message = "neither a file of jobs nor --model says which backbone is meant";
            return Err(Failure::new(Exit::Usage, message)
                .hint("spotmux plan --model llama-3-70b --nodes 8xh100"));
        }
    };
    let note = match (&args.model, theirs, ours) {
        (Some(asked), Some(theirs), _) if asked != theirs => Some(format!(
            "it is for {asked}, as --model says; the cluster's jobs get {theirs}"
        )),
        (None, Some(theirs), Some(ours)) if ours != theirs => Some(format!(
            "it is for {theirs}, the cluster's model, as jobs of a cluster get no other; the file names {ours}"
        )),
        _ => None,
    };
    Ok(Meant { name, base, note })
}

/// What to do where the cluster's backbone is not on this machine.
fn absent(failure: Failure, args: &ProblemArgs) -> Failure {
    match args.cluster_nodes && args.model.is_none() && failure.exit == Exit::NotFound {
        true => failure.hint("it is the cluster's model; --model names one of its sizes here"),
        false => failure,
    }
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
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn who_joins_is_as_asked_or_as_the_clusters_file_says() {
        let (growth, off) = (schema::Saturation::Growth, schema::Saturation::Off);
        assert_eq!(saturation(None, Some(off), true), Saturation::Off);
        assert_eq!(saturation(None, Some(growth), true), Saturation::GROWTH);
        // Nobody waits for a guess.
        assert_eq!(saturation(None, Some(growth), false), Saturation::Off);
        let asked = Some(Joining::NoLoss);
        assert_eq!(saturation(asked, Some(off), false), Saturation::NO_LOSS);
        assert_eq!(saturation(None, None, false), Saturation::NO_LOSS);
    }

    #[test]
    fn jobs_of_a_cluster_are_for_its_model_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = folder.path().join("cluster.toml");
        fs::write(&cluster, "[model]\npath = 'theirs'\n").unwrap();
        let cluster = shared::config::load::load(&cluster, [], &[]).unwrap();
        let jobs = folder.path().join("jobs.toml");
        let text = "model = 'ours'\n[[job]]\nname = 'a'\nadapter = { method = 'ia3' }\ndata = { train = 'a.jsonl' }\n";
        fs::write(&jobs, text).unwrap();
        let file = Jobs::read(&jobs).unwrap();
        let asks = |words: &[&str]| {
            let words = ["spotmux", "quote", "jobs.toml"]
                .iter()
                .chain(words)
                .copied();
            match Args::try_parse_from(words).unwrap().command {
                Command::Quote(args) => args.problem,
                _ => panic!("it is a quote"),
            }
        };
        let of = |words: &[&str], cluster| meant(&asks(words), Some(&file), cluster).unwrap();
        let alone = of(&[], None);
        assert_eq!((alone.name.as_str(), alone.note), ("ours", None));
        let there = of(&["--cluster"], Some(&cluster));
        assert_eq!(there.name, "theirs");
        let note = there.note.unwrap();
        assert!(note.contains("the file names ours"), "{note}");
        let asked = of(&["--cluster", "--model", "other"], Some(&cluster));
        assert_eq!(asked.name, "other");
        assert!(asked.note.unwrap().contains("get theirs"));
    }
}
