//! The settings of a simulated cluster: everything a hundred times quicker than in life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordinator::life::admission::{Admission, Levels};
use coordinator::life::placement::{Load, Stages, Weights};
use coordinator::plan::profile::Weights as Kept;
use coordinator::plan::snapshot::Saturation;
use coordinator::record::{Inputs, Measure};
use coordinator::settings::{Backbone, Bounds, Layout, Limits, Settings};
use shared::actor::waits::Waits;
use shared::ids::JobId;
use shared::model::ModelShape;
use shared::model::config::parse;
use shared::recompute::Recompute;
use shared::units::{Bytes, Micros};

use crate::dice::Dice;

/// Layers of the backbone.
pub(crate) const LAYERS: u32 = 6;

/// Memory that each node offers.
pub(crate) const MEMORY: Bytes = Bytes(64 << 20);

/// Heartbeats tell of too much memory for two seconds of every sixteen.
const PULSE: Micros = Micros::of_millis(2_000);

/// Identity of the backbone.
pub(crate) const IDENTITY: &str = "ab12";

fn shape() -> ModelShape {
    let text = r#"{"model_type":"llama","num_hidden_layers":6,"hidden_size":64,"num_attention_heads":4,
        "vocab_size":128,"intermediate_size":128,"max_position_embeddings":128,"rms_norm_eps":1e-5,
        "num_key_value_heads":4}"#;
    parse(text).expect("a configuration that parses")
}

/// What a node has in use: now and then more than it offers, so that passes become smaller, and larger again.
pub(crate) fn memory_used(now: Micros) -> Bytes {
    match (now.0 / PULSE.0) % 8 {
        0 => Bytes(2 * MEMORY.0),
        _ => Bytes(1),
    }
}

/// What is told of a job's rows: of one in four nothing, so that the planner does not know it.
pub(crate) fn inputs(job: JobId) -> Inputs {
    let (rows, length) = (2 + job.0 as usize % 3, 16 << (job.0 % 3));
    let measure = Measure::of(vec![(length, length - 2); rows]);
    Inputs {
        measure: (job.0 % 4 != 3).then(|| Box::new(measure)),
        ..Inputs::default()
    }
}

/// Most rows of a pass.
pub(crate) const TOKENS_PER_PASS: u64 = 64;

/// A planner without profiles: nobody waits for anything but memory, of which there is enough for all.
fn admission() -> Admission {
    Admission {
        profiles: Vec::new(),
        blocks: Kept::F32,
        tables: Kept::F32,
        max_added_latency: Micros(0),
        patience: Micros::of_millis(60_000),
        tenants: BTreeMap::new(),
        tokens_per_pass: TOKENS_PER_PASS,
        levels: Levels::default(),
        saturation: Saturation::NO_LOSS,
    }
}

/// Settings of a cluster of so many nodes; two in three have a planner.
pub(crate) fn settings(dice: &mut Dice, nodes: u64) -> Settings {
    let load = Load {
        bytes: 100,
        compute: 10,
    };
    let stages = match dice.below(4) {
        0 => Stages::AllNodes,
        n => Stages::Fixed(n.min(nodes) as u32),
    };
    let expect = match stages {
        Stages::Fixed(stages) => stages,
        Stages::AllNodes => nodes as u32,
    };
    Settings {
        cluster: "sim".into(),
        backbone: Backbone {
            name: "tiny".into(),
            identity: IDENTITY.into(),
            products: shared::job::Products::F32,
            shape: shape(),
            weights: Weights {
                embedding: load,
                layers: vec![load; LAYERS as usize],
                head: load,
            },
        },
        layout: Layout {
            stages,
            replicas: dice.between(1, 2) as u32,
            expect,
            settle: Micros::of_millis(3_000),
            listed: BTreeSet::new(),
            market: false,
            activation_budget: Bytes(25),
            recompute: Recompute::None,
        },
        limits: Limits {
            jobs_per_replica: dice.between(2, 6) as u32,
            live_jobs: 100,
            // Nodes that come back are as new ones.
            gone_nodes_kept: 1,
            events_kept: 50,
            events_answered: 10,
            ..Limits::default()
        },
        admission: (dice.below(3) > 0).then(|| Arc::new(admission())),
        bounds: Bounds {
            heartbeat: Micros::of_millis(800),
            reconnect: Micros::of_millis(700),
            attach: Micros::of_millis(1_400),
            device: Micros::of_millis(1_000),
            prepare: Micros::of_millis(3_000),
            drain: Micros::of_millis(2_000),
            hold: Micros::of_millis(2_000),
            retry: Micros::of_millis(200),
            penalty: Micros::of_millis(1_000),
            drain_tries: 2,
            // Outages may follow one another for as long as faults come.
            outage: Micros::of_millis(20_000),
            again: Waits {
                first: Micros::of_millis(50),
                most: Micros::of_millis(1_000),
            },
        },
    }
}
