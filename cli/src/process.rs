//! The processes of a cluster: what its file says, turned into what a coordinator or a node is told.

pub(crate) mod judge;
pub(crate) mod market;

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coordinator::actor::{BackboneFiles, CoordinatorSettings, Language as Spoken};
use coordinator::life::placement::{Load, Stages, Weights};
use coordinator::settings as decisions;
use gpu_actor::actor::reclaim::Watch;
use gpu_actor::actor::{Fetch, NodeSettings};
use gpu_actor::model::{Model, OpenOptions};
use kernels::cpu::Cpu;
use shared::artifact;
use shared::config::joining;
use shared::config::load::Loaded;
use shared::config::places;
use shared::config::schema::{self, Cloud, Node};
use shared::ids::NodeName;
use shared::job::Products;
use shared::net::endpoint::EndpointSettings;
use shared::units::{Bytes, Micros};
use shared::wire::codec::Limits;
use shared::wire::notice::{Departure, LeaveCause};
use tokio::sync::watch;

use crate::admission;
use crate::backbone;
use crate::clock;
use crate::exit::{Exit, Failure, OrExit};
use crate::identity;
use crate::language::Language;
use crate::security;
use crate::settings::Settings;
use crate::store::Store;

/// A silent peer is gone after so long, whoever it is.
const IDLE: Duration = Duration::from_secs(6);
/// An idle connection says so often that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Chunks that may be under way to a neighbour. A credit waits behind chunks that go its way: four left a link idle
/// for a tenth of the time.
const CREDITS: u32 = 8;
/// Spans kept for traces.
const SPANS: usize = 20_000;

fn endpoint(listen: std::net::SocketAddr, loaded: &Loaded) -> EndpointSettings {
    let mut settings = EndpointSettings::at(listen);
    settings.idle_timeout = IDLE;
    settings.keep_alive = KEEP_ALIVE;
    settings.limits = limits(loaded);
    settings
}

/// Largest frames, for all that speak with a cluster of these settings.
pub(crate) fn limits(loaded: &Loaded) -> Limits {
    let Bytes(frame) = loaded.config.limits.frame();
    Limits {
        control_bytes: usize::try_from(frame).unwrap_or(usize::MAX),
        ..Limits::default()
    }
}

fn artifacts(loaded: &Loaded, settings: &Settings) -> Result<artifact::Store, Failure> {
    let url = &loaded.config.store.url;
    let address = if url.contains("://") {
        url.clone()
    } else {
        loaded.path_of(url).display().to_string()
    };
    // Options are a bucket's: a folder of a machine whose environment has some is a folder all the same.
    let none = std::collections::BTreeMap::new();
    let options = match address.starts_with("s3://") {
        true => &settings.store_options,
        false => &none,
    };
    artifact::Store::open(&address, options).or_exit(Exit::BadInput)
}

fn model_path(loaded: &Loaded, settings: &Settings) -> Result<std::path::PathBuf, Failure> {
    Store::new(settings)?.resolve(&loaded.config.model.path, &loaded.folder)
}

/// The backbone as it lies in its file: nothing is expanded.
fn look(path: &Path) -> Result<Model, Failure> {
    let options = OpenOptions {
        check_finite: false,
        ..OpenOptions::new(backbone::cpu(Some(1))?)
    };
    Model::open(path, &options).or_exit(Exit::BadInput)
}

/// What a coordinator reads of the backbone.
struct Given {
    model: Model,
    files: Vec<(String, std::path::PathBuf)>,
    language: Language,
}

impl Given {
    fn read(loaded: &Loaded, settings: &Settings) -> Result<Self, Failure> {
        let path = model_path(loaded, settings)?;
        let model = look(&path)?;
        Ok(Self {
            files: gpu_actor::model::files(&path).or_exit(Exit::BadInput)?,
            language: Language::of(&model.tokenizer, None)?,
            model,
        })
    }
}

/// What the coordinator is told.
///
/// # Errors
/// What is wrong with the model, the store or a path.
pub(crate) fn coordinator(
    loaded: &Loaded,
    settings: &Settings,
) -> Result<CoordinatorSettings, Failure> {
    let config = &loaded.config;
    let Given {
        model,
        files,
        language,
    } = Given::read(loaded, settings)?;
    let hash = identity::of(&model, &files, &loaded.path_of(&config.cluster.state));
    let directory = security::directory(loaded);
    let journal = loaded.path_of(&config.coordinator.journal);
    if let Some(folder) = journal.parent() {
        std::fs::create_dir_all(folder).or_exit(Exit::Internal)?;
    }
    let authority = directory.join(places::AUTHORITY);
    Ok(CoordinatorSettings {
        decisions: decide(loaded, &model, hash)?,
        language: Arc::new(Spoken {
            tokenizer: language.tokenizer,
            template: language.template,
        }),
        backbone: BackboneFiles {
            base: model.name.clone().unwrap_or_else(|| model.identity()),
            files,
            serve_rate: config.gpu_actor.serve_rate(),
        },
        endpoint: endpoint(config.coordinator.listen, loaded),
        metrics: config
            .telemetry
            .metrics
            .then_some(config.coordinator.metrics),
        credential: directory.join(places::COORDINATOR),
        authority: authority.exists().then_some(authority),
        tokens: directory.join(places::TOKENS),
        told_to_joiners: told_to_joiners(loaded)?,
        certificate_life: config.security.certificate_life(),
        store: artifacts(loaded, settings)?,
        journal,
        owner: format!("coordinator of process {}", std::process::id()),
        lease: Micros::of_millis(config.coordinator.lease_seconds.saturating_mul(1000)),
        largest_upload: config.limits.upload(),
        snapshot_every: 5_000,
        events_kept: config.limits.events_kept,
        tick: Duration::from_millis(200),
        steady: Arc::new(steady),
        wall: Arc::new(clock::now),
    })
}

/// What a machine that joins must have the same; folders of this machine by their whole paths.
fn told_to_joiners(loaded: &Loaded) -> Result<Vec<(String, String)>, Failure> {
    let config = &loaded.config;
    let whole = |text: &str| {
        let path = loaded.path_of(text);
        std::path::absolute(&path)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let model = match loaded.path_of(&config.model.path).exists() {
        true => whole(&config.model.path),
        false => config.model.path.clone(),
    };
    let store = match config.store.url.contains("://") {
        true => config.store.url.clone(),
        false => whole(&config.store.url),
    };
    joining::told(config, &model, &store).or_exit(Exit::Internal)
}

fn steady() -> Micros {
    let since = clock::since_first_asked().as_micros();
    Micros(u64::try_from(since).unwrap_or(u64::MAX))
}

fn decide(loaded: &Loaded, model: &Model, hash: String) -> Result<decisions::Settings, Failure> {
    let config = &loaded.config;
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let stages = match config.plan.stages {
        schema::Stages::Count(count) => Stages::Fixed(narrow(count)),
        schema::Stages::All => Stages::AllNodes,
    };
    let expect = match stages {
        Stages::Fixed(count) => count.saturating_mul(narrow(config.plan.replicas)),
        Stages::AllNodes => narrow(config.node.len() as u64),
    };
    let bound = config.coordinator.heartbeat_bound();
    Ok(decisions::Settings {
        admission: Some(Arc::new(admission::of(loaded, model)?)),
        cluster: config.cluster.name.to_string(),
        backbone: decisions::Backbone {
            name: model
                .name
                .clone()
                .unwrap_or_else(|| config.model.path.clone()),
            identity: hash,
            products: config.model.products,
            shape: model.shape.clone(),
            weights: weights(model),
        },
        layout: decisions::Layout {
            stages,
            replicas: narrow(config.plan.replicas),
            expect,
            settle: Micros::of_millis(5_000),
            listed: config.node.iter().map(|node| node.name.clone()).collect(),
            market: config.market.runs(),
            activation_budget: config.plan.activation_budget(),
            recompute: config.plan.recompute,
        },
        limits: decisions::Limits {
            jobs_per_replica: narrow(config.limits.jobs_per_replica),
            live_jobs: narrow(config.limits.jobs),
            ended_jobs_kept: narrow(config.limits.ended_jobs_kept) as usize,
            gone_nodes_kept: narrow(config.limits.gone_nodes_kept) as usize,
            events_kept: usize::try_from(config.coordinator.events_kept).unwrap_or(usize::MAX),
            least_budget: market::least_budget(loaded),
            risk_checkpoint_steps: config.coordinator.risk_checkpoint_steps,
            ..decisions::Limits::default()
        },
        bounds: decisions::Bounds {
            heartbeat: bound,
            reconnect: bound,
            device: config.coordinator.device_patience(),
            outage: config.store.outage(),
            ..decisions::Bounds::default()
        },
    })
}

/// Bytes as they lie in the file, and multiplications per token.
fn weights(model: &Model) -> Weights {
    let shape = &model.shape;
    let head = (shape.hidden * shape.vocab) as u64;
    let layer = |layer: &gpu_actor::model::LayerWeights| {
        let matrices = || layer.projections.iter();
        Load {
            bytes: matrices().map(|weight| weight.byte_len() as u64).sum(),
            compute: matrices()
                .map(|weight| (weight.rows() * weight.cols()) as u64)
                .sum(),
        }
    };
    Weights {
        embedding: Load {
            bytes: model.embedding().byte_len() as u64,
            compute: 0,
        },
        layers: model.layers.iter().map(layer).collect(),
        // Only tokens that count in the loss pass the head; half of them is usual.
        head: Load {
            bytes: model.head().byte_len() as u64,
            compute: head / 2,
        },
    }
}

/// What a node is told.
///
/// # Errors
/// What is wrong with the model, the store or the threads.
pub(crate) fn node(
    loaded: &Loaded,
    name: &NodeName,
    settings: &Settings,
) -> Result<NodeSettings, Failure> {
    let config = &loaded.config;
    let node: Node = match config.node(name) {
        Some(node) => node,
        None => config.unlisted(name.clone()),
    };
    let directory = security::directory(loaded);
    let state = loaded.path_of(&config.cluster.state);
    let (model, fetch) = match model_path(loaded, settings) {
        Ok(path) => (path, None),
        Err(absent) if absent.exit == Exit::NotFound && config.gpu_actor.fetch_gib > 0 => {
            let fetch = Fetch {
                folder: state.join(places::BACKBONES),
                most: config.gpu_actor.fetch(),
            };
            (loaded.path_of(&config.model.path), Some(fetch))
        }
        Err(failure) => return Err(failure),
    };
    // A backbone that is fetched is hashed when it is there.
    let identity = match &fetch {
        Some(_) => None,
        None => {
            let files = gpu_actor::model::files(&model).or_exit(Exit::BadInput)?;
            Some(identity::of(&look(&model)?, &files, &state))
        }
    };
    Ok(NodeSettings {
        node: node.name.clone(),
        incarnation: clock::now().0,
        coordinator: config.coordinator.listen,
        endpoint: endpoint(node.listen, loaded),
        metrics: config.telemetry.metrics.then_some(node.metrics),
        advertised: node.advertise.map(|address| address.to_string()),
        credential: directory.join(places::node(&node.name)),
        store: artifacts(loaded, settings)?,
        model,
        identity,
        fetch,
        serve_rate: config.gpu_actor.serve_rate(),
        format: config.model.format,
        memory: node.memory,
        cpu: threads(node.threads, config.model.products)?,
        heartbeat: Duration::from_micros(config.coordinator.heartbeat().0),
        tokens_per_pass: usize::try_from(config.plan.tokens_per_pass).unwrap_or(usize::MAX),
        chunk_tokens: usize::try_from(config.plan.chunk_tokens()).unwrap_or(usize::MAX),
        rounds_ahead: usize::try_from(config.plan.rounds_ahead)
            .unwrap_or(1)
            .saturating_add(1),
        credits: CREDITS,
        narrow: config.plan.bf16_on_the_wire,
        link_patience: Duration::from_secs(20),
        stall_patience: Duration::from_secs(120),
        spans_kept: SPANS,
        clock: Arc::new(clock::now),
        steady: Arc::new(steady),
    })
}

fn threads(asked: u64, products: Products) -> Result<Cpu, Failure> {
    let asked = usize::try_from(asked).ok().and_then(NonZero::new);
    backbone::cpu_with(asked.map(NonZero::get), products)
}

/// Ends when the system asks a node to end, or its cloud says that its machine is to be taken; with what it tells its
/// coordinator then. `risk` is told meanwhile why it may be.
pub(crate) async fn asked_to_leave(
    within: Micros,
    cloud: Option<Cloud>,
    risk: watch::Sender<Option<String>>,
) -> Departure {
    // It hears the second signal too, whichever of the two comes first here.
    let asked = tokio::spawn(asked_to_end());
    let reclaimed = async {
        match cloud.map(Watch::of) {
            Some(watch) => watch.reclaimed(clock::now, &risk).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = asked => Departure { within, cause: LeaveCause::Asked },
        reclaim = reclaimed => {
            tracing::warn!(within = %reclaim.within, cause = reclaim.cause, "this machine is to be taken");
            Departure { within: reclaim.within, cause: LeaveCause::Reclaimed }
        }
    }
}

/// Ends when the system asks the process to end; asked again, the process ends at once.
pub(crate) async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut end), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
}
