//! Measures the planner: `cargo run --release -p coordinator --example planner`.

use std::collections::BTreeMap;

use coordinator::plan::adapter::Adapter;
use coordinator::plan::profile::{Peak, Profile, Weights};
use coordinator::plan::snapshot::{Machine, Options, Saturation, Snapshot, Task};
use coordinator::plan::solve::solve;
use shared::ids::{JobId, NodeName};
use shared::model::config;
use shared::units::{Bytes, MicroUsd, Micros};

const LLAMA_7B: &str = r#"{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
    "num_key_value_heads":32,"vocab_size":32000,"intermediate_size":11008,"max_position_embeddings":4096,
    "rms_norm_eps":1e-5}"#;

const LLAMA_70B: &str = r#"{"model_type":"llama","num_hidden_layers":80,"hidden_size":8192,"num_attention_heads":64,
    "num_key_value_heads":8,"vocab_size":128256,"intermediate_size":28672,"max_position_embeddings":8192,
    "rms_norm_eps":1e-5,"rope_theta":500000.0}"#;

/// Llama 3 70B from its configuration alone, with two jobs, on eight cards.
fn seventy_billion(peak: &Peak, blocks: Weights) -> Result<(), Box<dyn std::error::Error>> {
    let mut large = problem(2, 8)?;
    let profile = Profile::peak(peak);
    for machine in large.nodes.values_mut() {
        machine.device.clone_from(&profile.device);
        machine.memory = Bytes(profile.memory_bytes);
    }
    for task in large.tasks.values_mut() {
        task.adapter = Adapter::lora(16);
        task.lengths = vec![512; 8];
    }
    large.model = config::parse(LLAMA_70B)?;
    large.blocks = blocks;
    large.options.stages = None;
    println!("\nLlama 3 70B, {} on 8 x {}", blocks.name(), profile.device);
    large.profiles.insert(profile.device.clone(), profile);
    println!("{}", solve(&large, None)?.1.text());
    Ok(())
}

fn problem(jobs: u64, stages: u32) -> Result<Snapshot, Box<dyn std::error::Error>> {
    let profile = Profile::peak(&Peak::H100);
    let link = |name: &str| {
        profile
            .link(name)
            .cloned()
            .ok_or("the profile has the link")
    };
    let (inside, between) = (link("inside")?, link("between")?);
    let task = |at: u64| Task {
        tenant: format!("t{}", at % 7),
        // Only queries and values, so that thousands fit.
        adapter: Adapter {
            sites: Adapter::lora(4)
                .sites
                .into_iter()
                .step_by(2)
                .take(2)
                .collect(),
            ..Adapter::lora(4)
        },
        bytes_per_value: 16,
        lengths: vec![64 + (at % 7) as u32 * 32; 1 + at as usize % 8],
        longest_row: 0,
        counted_permille: 1000,
        steps: 1000,
        arrived: Micros(at),
        queued: Micros(at),
        started: None,
        max_added_latency: None,
        deadline: None,
    };
    let machine = Machine {
        device: profile.device.clone(),
        memory: Bytes(profile.memory_bytes),
        site: "here".into(),
        price: MicroUsd(2_000_000),
        losses_per_kilohour: 1,
    };
    let mut nodes = BTreeMap::new();
    for at in 0..stages {
        nodes.insert(NodeName::new(format!("n{at:02}"))?, machine.clone());
    }
    Ok(Snapshot {
        model: config::parse(LLAMA_7B)?,
        blocks: Weights::Bf16,
        tables: Weights::Bf16,
        nodes,
        inside,
        between,
        profiles: BTreeMap::from([(profile.device.clone(), profile)]),
        tasks: (0..jobs).map(|at| (JobId(at), task(at))).collect(),
        tenants: BTreeMap::new(),
        options: Options {
            stages: Some(stages),
            // All of them at once: the largest problem.
            saturation: Saturation::Off,
            ..Options::default()
        },
        now: Micros(0),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:>7} {:>7} {:>12} {:>12} {:>9} {:>9}",
        "jobs", "stages", "first ms", "again ms", "trains", "hybrids"
    );
    let sizes = [
        (8, 4),
        (32, 4),
        (100, 4),
        (320, 8),
        (1_000, 16),
        (3_200, 16),
        (10_000, 16),
    ];
    for (jobs, stages) in sizes {
        let problem = problem(jobs, stages)?;
        let mut times = Vec::new();
        let mut plan = None;
        for _ in 0..2 {
            #[expect(
                clippy::disallowed_methods,
                reason = "an example measures its own time"
            )]
            let begin = std::time::Instant::now();
            let (made, _) = solve(&problem, plan.as_ref())?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            plan = Some(made);
        }
        let replicas = plan.iter().flat_map(|plan| plan.replicas.values());
        let (mut trains, mut hybrids) = (0, 0);
        for replica in replicas {
            trains += replica.jobs.len();
            hybrids += replica.hybrid_tasks().len();
        }
        println!(
            "{jobs:>7} {stages:>7} {:>12.1} {:>12.1} {trains:>9} {hybrids:>9}",
            times[0], times[1]
        );
    }
    seventy_billion(&Peak::RTX4090, Weights::Q4)?;
    seventy_billion(&Peak::H100, Weights::Bf16)
}
