//! What the decisions go by; read from a file by the shell and passed in.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::actor::waits::Waits;
use shared::ids::NodeName;
use shared::job::Products;
use shared::model::ModelShape;
use shared::recompute::Recompute;
use shared::units::{Bytes, MicroUsd, Micros};

use crate::life::admission::Admission;
use crate::life::placement::{Stages, Weights};

/// All of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the cluster.
    pub cluster: String,
    /// The model that all nodes hold a part of.
    pub backbone: Backbone,
    /// How the backbone is cut and copied.
    pub layout: Layout,
    /// How much at once.
    pub limits: Limits,
    /// How long each thing may take.
    pub bounds: Bounds,
    /// Who may begin; without it a replica takes jobs up to their number alone.
    pub admission: Option<Arc<Admission>>,
}

/// The model that all nodes hold a part of.
#[derive(Clone, Debug)]
pub struct Backbone {
    /// Its name, for people.
    pub name: String,
    /// Content hash of its identity: a node with another is refused.
    pub identity: String,
    /// How products with frozen weights are computed: a node that does otherwise is refused.
    pub products: Products,
    /// Against which specifications are checked.
    pub shape: ModelShape,
    /// Size and work of its layers.
    pub weights: Weights,
}

/// How the backbone is cut and copied.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Stages of a replica.
    pub stages: Stages,
    /// Copies wanted.
    pub replicas: u32,
    /// No first plan before so many nodes are here ...
    pub expect: u32,
    /// ... unless this long passed since the leadership began.
    pub settle: Micros,
    /// Nodes that the cluster's file lists: they may yet come.
    pub listed: BTreeSet<NodeName>,
    /// Whether a market may bring more.
    pub market: bool,
    /// Most bytes of activations that a stage may hold at once.
    pub activation_budget: Bytes,
    /// Layers of every stage that keep no activations.
    pub recompute: Recompute,
}

/// How much at once.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Jobs that train on a replica at once.
    pub jobs_per_replica: u32,
    /// Jobs that have not ended.
    pub live_jobs: u32,
    /// Jobs that ended, the newest: the others are known no more.
    pub ended_jobs_kept: usize,
    /// Nodes that are gone, the newest: the others are as if they never came.
    pub gone_nodes_kept: usize,
    /// Events kept in memory; the journal has more.
    pub events_kept: usize,
    /// Events in one answer.
    pub events_answered: usize,
    /// What a job that names a budget costs at least; 0 where no market holds the machines.
    pub least_budget: MicroUsd,
    /// While a machine may be taken, states of jobs on it are stored after so many steps; 0: as the jobs ask.
    pub risk_checkpoint_steps: u64,
}

/// How long each thing may take.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// A node that says nothing for so long is silent, and its connection is closed.
    pub heartbeat: Micros,
    /// A node without a connection for so long is lost, and its work goes elsewhere.
    pub reconnect: Micros,
    /// A node of the plan that a new leadership has not heard for so long is lost: it may yet have to notice that the
    /// leadership before is gone.
    pub attach: Micros,
    /// One piece of work of a device, until it is known how long those of that device take.
    pub device: Micros,
    /// Opening layers.
    pub prepare: Micros,
    /// Ending the steps that are begun and making them durable; and, at the end of the cluster, ending a process.
    pub drain: Micros,
    /// Taking over a stage and linking it.
    pub hold: Micros,
    /// Between two tries to lay out the cluster.
    pub retry: Micros,
    /// A node that could not open its layers is left out for so long.
    pub penalty: Micros,
    /// Moves that wait for a first stage to end its steps, in a row, before its replica is taken for broken.
    pub drain_tries: u32,
    /// A store that does not answer, before jobs that need it fail.
    pub outage: Micros,
    /// Between two tries of what such a store refused.
    pub again: Waits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            jobs_per_replica: 64,
            live_jobs: 10_000,
            ended_jobs_kept: 5_000,
            gone_nodes_kept: 1_000,
            events_kept: 20_000,
            events_answered: 500,
            least_budget: MicroUsd(0),
            risk_checkpoint_steps: 1,
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            heartbeat: Micros::of_millis(3_000),
            reconnect: Micros::of_millis(3_000),
            attach: Micros::of_millis(12_000),
            device: Micros::of_millis(60_000),
            prepare: Micros::of_millis(120_000),
            drain: Micros::of_millis(60_000),
            hold: Micros::of_millis(60_000),
            retry: Micros::of_millis(1_000),
            penalty: Micros::of_millis(30_000),
            drain_tries: 2,
            outage: Micros::of_millis(300_000),
            again: Waits {
                first: Micros::of_millis(1_000),
                most: Micros::of_millis(30_000),
            },
        }
    }
}

/// A small cluster, for tests of this crate.
#[cfg(test)]
pub(crate) mod testing {
    use shared::model::{ModelShape, config};

    use super::*;
    use crate::life::placement::Load;

    pub(crate) fn shape() -> ModelShape {
        let text = r#"{"model_type":"llama","num_hidden_layers":6,"hidden_size":64,"num_attention_heads":4,
            "vocab_size":128,"intermediate_size":128,"max_position_embeddings":128,"rms_norm_eps":1e-5,
            "num_key_value_heads":4}"#;
        config::parse(text).expect("a configuration that parses")
    }

    pub(crate) fn settings(stages: Stages, replicas: u32, expect: u32) -> Settings {
        let load = Load {
            bytes: 100,
            compute: 10,
        };
        Settings {
            cluster: "test".into(),
            backbone: Backbone {
                name: "tiny".into(),
                identity: "ab".into(),
                products: Products::F32,
                shape: shape(),
                weights: Weights {
                    embedding: load,
                    layers: vec![load; 6],
                    head: load,
                },
            },
            layout: Layout {
                stages,
                replicas,
                expect,
                settle: Micros::of_millis(10_000),
                listed: BTreeSet::new(),
                market: false,
                activation_budget: Bytes(50),
                recompute: Recompute::None,
            },
            limits: Limits::default(),
            bounds: Bounds::default(),
            admission: None,
        }
    }
}
