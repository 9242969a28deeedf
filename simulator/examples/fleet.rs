//! A week of a fleet under four ways to share it.
//!
//! `cargo run --release -p simulator --example fleet -- [philly|alibaba|generated] [GPUS] [HOURS] [FOLDER] [PROFILE.json]`
//! with FOLDER the workloads (`../shared/workloads`); writes fleet.json and fleet.svg beside where it runs, the text to
//! the screen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use coordinator::plan::profile::{Peak, Profile, Weights};
use coordinator::plan::snapshot::{Options, Snapshot};
use shared::model::config;
use shared::units::Micros;
use simulator::fleet::trace::{self, Arrival, Pace};
use simulator::fleet::{Losses, Mix, Setting, compare, jobs, svg};

const LLAMA_7B: &str = r#"{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
    "num_key_value_heads":32,"vocab_size":32000,"intermediate_size":11008,"max_position_embeddings":4096,
    "rms_norm_eps":1e-5}"#;

fn arrivals(
    source: &str,
    folder: &str,
    pace: Pace,
    seed: u64,
) -> Result<Vec<Arrival>, Box<dyn std::error::Error>> {
    let folder = Path::new(folder);
    Ok(match source {
        "philly" => {
            let mut clusters = Vec::new();
            for entry in fs::read_dir(folder.join("philly"))? {
                let path = entry?.path();
                let name = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                if name.starts_with("vc-") {
                    clusters.push((name, fs::read_to_string(&path)?));
                }
            }
            clusters.sort();
            let runtimes = fs::read_to_string(folder.join("philly/runtime_s.csv"))?;
            trace::philly(&clusters, &runtimes, pace, seed)?
        }
        "alibaba" => {
            let pods = folder.join("alibaba-gpu-2023/openb_pod_list_default.csv");
            trace::alibaba(&fs::read_to_string(pods)?, pace)?
        }
        // Mean and deviation of the week that the paper simulated.
        _ => trace::generated(pace, 22_356, 36_774, 8, seed),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "an example measures its own time"
    )]
    let begin = std::time::Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, default: &str| {
        arguments
            .get(at)
            .map_or_else(|| default.to_owned(), String::clone)
    };
    let (source, seed) = (word(0, "philly"), 1);
    let gpus: usize = word(1, "128").parse()?;
    let horizon_s = word(2, "168").parse::<u64>()? * 3_600;
    let folder = word(3, "../shared/workloads");
    let profile = match arguments.get(4) {
        Some(file) => Profile::parse(&fs::read_to_string(file)?)?,
        None => Profile::peak(&Peak::A40),
    };
    // The paper's rate: 2.59 jobs a minute for 128 GPUs.
    let pace = Pace {
        per_100_minutes: 259 * gpus as u64 / 128,
        horizon_s,
    };
    let arrivals = arrivals(&source, &folder, pace, seed)?;
    let link = |name: &str| {
        profile
            .link(name)
            .cloned()
            .ok_or_else(|| format!("the profile has no link {name:?}"))
    };
    let base = Snapshot {
        model: config::parse(LLAMA_7B)?,
        blocks: Weights::Bf16,
        tables: Weights::Bf16,
        profiles: BTreeMap::new(),
        nodes: BTreeMap::new(),
        inside: link("inside")?,
        between: link("between")?,
        tasks: BTreeMap::new(),
        tenants: BTreeMap::new(),
        options: Options::default(),
        now: Micros(0),
    };
    let mut setting = Setting {
        base,
        profile,
        gpus,
        width: None,
        micro_batches: None,
        horizon_s,
        losses: Losses::default(),
        price: 390_000,
        seed,
    };
    for (uniform, width) in [
        (true, None),
        (false, None),
        (true, Some(4)),
        (false, Some(4)),
    ] {
        let mix = Mix::paper(uniform);
        let jobs = jobs(arrivals.clone(), &mix, seed);
        setting.width = width;
        let name = if uniform { "uniform" } else { "non-uniform" };
        let how = width.map_or_else(
            || "each system's best width".to_owned(),
            |w| format!("{w} GPUs an instance"),
        );
        let title = format!(
            "{source}, {} jobs in {} h, {name}, {how}",
            jobs.len(),
            horizon_s / 3600
        );
        let found = compare(&setting, &mix, &jobs, &title)?;
        println!("{}", found.text());
        if uniform && width.is_none() {
            fs::write("fleet.json", serde_json::to_string_pretty(&found.json())?)?;
            fs::write("fleet.svg", svg(&found))?;
        }
        println!("after {:.1} s\n", begin.elapsed().as_secs_f64());
    }
    Ok(())
}
