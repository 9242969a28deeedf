//! Small problems, for tests of the planner.

use std::collections::BTreeMap;

use shared::ids::{JobId, NodeName};
use shared::model::{ModelShape, config};
use shared::units::{Bytes, MicroUsd, Micros};

use super::adapter::Adapter;
use super::profile::{Peak, Profile, Weights};
use super::snapshot::{Machine, Options, Snapshot, Task};

/// Llama 2 7B.
pub(crate) fn llama_7b() -> ModelShape {
    let text = r#"{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
        "num_key_value_heads":32,"vocab_size":32000,"intermediate_size":11008,"max_position_embeddings":4096,
        "rms_norm_eps":1e-5}"#;
    config::parse(text).expect("a configuration that parses")
}

/// Llama 3 70B.
pub(crate) fn llama_70b() -> ModelShape {
    let text = r#"{"model_type":"llama","num_hidden_layers":80,"hidden_size":8192,"num_attention_heads":64,
        "num_key_value_heads":8,"vocab_size":128256,"intermediate_size":28672,"max_position_embeddings":8192,
        "rms_norm_eps":1e-5,"rope_theta":500000.0}"#;
    config::parse(text).expect("a configuration that parses")
}

/// A job with LoRA of a rank on all linear layers.
pub(crate) fn task(rank: u64, lengths: &[u32]) -> Task {
    Task {
        tenant: "t".into(),
        adapter: Adapter::lora(rank),
        bytes_per_value: 16,
        lengths: lengths.to_vec(),
        longest_row: 0,
        counted_permille: 1000,
        steps: 100,
        arrived: Micros(0),
        queued: Micros(0),
        started: None,
        max_added_latency: None,
        deadline: None,
    }
}

/// The jobs of the paper's workload B (Llama 7B): data set lengths and batch sizes.
pub(crate) fn workload_b() -> Vec<Task> {
    let lengths = [256, 64, 256, 64, 64, 256, 256, 256];
    let batches = [4, 2, 4, 4, 8, 2, 4, 4];
    let jobs = lengths.iter().zip(batches);
    jobs.map(|(length, batch)| task(16, &vec![*length; batch]))
        .collect()
}

/// Nodes of one kind at one site, with these jobs.
pub(crate) fn snapshot(model: ModelShape, peak: &Peak, nodes: usize, tasks: Vec<Task>) -> Snapshot {
    let profile = Profile::peak(peak);
    let link = |name: &str| profile.link(name).cloned().expect("a link");
    let machine = Machine {
        device: profile.device.clone(),
        memory: Bytes(profile.memory_bytes),
        site: "here".into(),
        price: MicroUsd(1_000_000),
        losses_per_kilohour: 10,
    };
    let name = |at: usize| NodeName::new(format!("n{at:02}")).expect("a name");
    let (inside, between) = (link("inside"), link("between"));
    Snapshot {
        model,
        blocks: Weights::Bf16,
        tables: Weights::Bf16,
        nodes: (0..nodes).map(|at| (name(at), machine.clone())).collect(),
        inside,
        between,
        profiles: BTreeMap::from([(profile.device.clone(), profile)]),
        tasks: (1..).map(JobId).zip(tasks).collect(),
        tenants: BTreeMap::new(),
        options: Options::default(),
        now: Micros(0),
    }
}
