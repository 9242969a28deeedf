//! Exported adapters: read back with the same bits and logits, and held against the PEFT library.
//!
//! The library's part needs an interpreter with torch, transformers and peft: `SPOTMUX_PEER_PYTHON` names it. Serial
//! bottlenecks are held against AdapterHub's library by `SPOTMUX_ADAPTERS_PYTHON`, which has torch and adapters (that
//! library wants a transformers of its own). Without an interpreter its part is skipped aloud. With `SPOTMUX_SMOLLM2` too (the GGUF file), adapters of the real model are held as
//! well: several minutes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod broken;
mod keys;
mod scale;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use data::rows::TokenRow;
use gpu_actor::model::tiny::{TinySpec, write_tiny};
use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::files::{self, Export, Imported};
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use gpu_actor::stage::step::Stage;
use kernels::cpu::Cpu;
use serde_json::json;
use shared::job::{AdapterSpec, OptimizerSpec, PrefixSpec};
use shared::model::Family;
use shared::random::{Domain, Stream};
use system_tests::engine::steps::{self, Trainee};
use system_tests::methods;
use system_tests::oracle::matrix::Matrix;
use system_tests::skipped;

const SEED: u64 = 11;

fn cpu() -> Cpu {
    Cpu::new(2).unwrap()
}

/// The smallest Llama with a head of its own, written and opened once.
fn tiny() -> Arc<Model> {
    static OPENED: OnceLock<Arc<Model>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_tiny(&path, &TinySpec::smallest(Family::Llama)).unwrap();
        // The file may go: what is mapped stays.
        open(&path)
    });
    Arc::clone(opened)
}

fn open(path: &Path) -> Arc<Model> {
    Arc::new(Model::open(path, &OpenOptions::new(cpu())).unwrap())
}

fn attach(stage: &mut Stage, spec: &AdapterSpec, layout: Layout, values: Vec<f32>) -> Trainee {
    let optimizer = OptimizerSpec {
        learning_rate: 1e-2,
        ..OptimizerSpec::default()
    };
    Trainee::attach(stage, spec, &optimizer, Arc::new(layout), values, SEED)
}

fn ids(vocab: usize) -> Vec<u32> {
    let stream = Stream::new(SEED, Domain::TinyModel, [3, 0, 0]);
    (0..14)
        .map(|i| stream.below(i, vocab as u64) as u32)
        .collect()
}

/// An adapter after two steps, from a start at which nothing is zero.
fn trained(stage: &mut Stage, spec: &AdapterSpec) -> (Trainee, Layout) {
    let model = Arc::clone(stage.model());
    let layout = Layout::new(spec, &model.shape, SEED);
    let mut values = init::values(&layout, &model, &cpu(), SEED, &[]);
    let stream = Stream::new(SEED, Domain::TinyModel, [4, 0, 0]);
    for (i, value) in values.iter_mut().enumerate() {
        *value += 0.02 * stream.normal(i as u32);
    }
    let mut trainee = attach(stage, spec, layout.clone(), values);
    let ids = ids(model.shape.vocab);
    let row = TokenRow::new(ids.clone(), ids.iter().map(|&id| id as i32).collect());
    for step in 0..2 {
        let mut jobs = [(&mut trainee, vec![&row], 1e-2)];
        steps::step(stage, &mut jobs, step, 100).unwrap();
    }
    (trainee, layout)
}

/// Trains, exports and reads back every method; returns the folders.
fn export_all(model: &Path, to: &Path, methods: &[AdapterSpec]) -> Vec<PathBuf> {
    let opened = open(model);
    let mut stage = Stage::new(Arc::clone(&opened), cpu());
    let ids = ids(opened.shape.vocab);
    let bare = steps::logits(&mut stage, None, &ids);
    let mut folders = Vec::new();
    for (number, spec) in methods.iter().enumerate() {
        let (trainee, layout) = trained(&mut stage, spec);
        let logits = steps::logits(&mut stage, Some(&trainee), &ids);
        let moved = bare.values.iter().zip(&logits.values);
        let moved = moved.fold(0.0, |most: f64, (a, b)| (a - b).abs().max(most));
        assert!(moved > 0.01, "{spec:?} changes nothing worth comparing");
        let values = trainee.values(&stage).to_vec();
        let folder = to.join(format!("adapter-{number}"));
        let base = model.to_str().unwrap();
        let shape = &opened.shape;
        let record = record(model, &ids, &logits);
        let extra = [("logits.json", record)];
        let export = Export {
            name: "v1.2 of train",
            spec,
            layout: &layout,
            values: &values,
            shape,
            base,
        };
        files::write(&folder, &export, &extra).unwrap();
        trainee.detach(&mut stage);
        let imported = files::read(&folder, shape).unwrap();
        assert_read_back(&mut stage, spec, imported, &values, &ids, &logits);
        folders.push(folder);
    }
    folders
}

/// What the script compares with: the logits of the last rows, as many as make a small file.
fn record(model: &Path, ids: &[u32], logits: &Matrix) -> Vec<u8> {
    let wanted = if logits.columns > 1000 { 2 } else { ids.len() };
    let rows: Vec<&[f64]> = (ids.len() - wanted..ids.len())
        .map(|t| logits.row(t))
        .collect();
    let sequences = [json!({"ids": ids, "logits": rows})];
    serde_json::to_vec(&json!({"base": model, "sequences": sequences})).unwrap()
}

fn assert_read_back(
    stage: &mut Stage,
    spec: &AdapterSpec,
    imported: Imported,
    values: &[f32],
    ids: &[u32],
    logits: &Matrix,
) {
    let computed = matches!(
        spec,
        AdapterSpec::Prefix(PrefixSpec {
            projection: Some(_),
            ..
        })
    );
    // A computed prefix travels as what it computed; everything else as it is.
    assert!(computed || imported.values == values, "{spec:?}: values");
    let trainee = attach(stage, &imported.spec, imported.layout, imported.values);
    let again = steps::logits(stage, Some(&trainee), ids);
    assert!(again == *logits, "{spec:?}: logits after reading back");
    trainee.detach(stage);
}

/// An interpreter named by the environment; without one, its part is skipped aloud.
fn interpreter(variable: &str, part: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "a test suite is a shell")]
    let named = std::env::var_os(variable);
    if named.is_none() {
        skipped::aloud(&format!("{part}: {variable} names no interpreter"));
    }
    named
}

fn run(python: &OsString, script: &str, arguments: &[&str], folders: &[PathBuf]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peer")
        .join(script);
    let output = Command::new(python)
        .arg(script)
        .args(arguments)
        .args(folders)
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Holds folders against the libraries, where they are; what the `adapters` library writes again is read.
fn hold(folders: &[PathBuf]) {
    if let Some(python) = interpreter("SPOTMUX_PEER_PYTHON", "the PEFT library's part") {
        run(&python, "check_adapters.py", &[], folders);
    }
    let serial = folders
        .iter()
        .filter(|f| f.join(files::HUB_WEIGHTS).exists());
    let serial: Vec<PathBuf> = serial.cloned().collect();
    assert!(
        !serial.is_empty(),
        "no bottleneck is in the adapters library's layout"
    );
    if let Some(python) = interpreter("SPOTMUX_ADAPTERS_PYTHON", "the adapters library's part") {
        run(&python, "check_bottlenecks.py", &["--resave"], &serial);
        for folder in &serial {
            let record = fs::read(folder.join("logits.json")).unwrap();
            let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
            let base = PathBuf::from(record["base"].as_str().unwrap());
            let shape = &open(&base).shape;
            let [ours, theirs] = [folder.clone(), folder.join("resaved")]
                .map(|folder| files::read(&folder, shape).unwrap());
            assert_eq!(ours.spec, theirs.spec);
            assert_eq!(ours.values, theirs.values);
        }
    }
}

/// Writes an adapter's folder.
fn write(folder: &Path, spec: &AdapterSpec, layout: &Layout, values: &[f32], model: &Model) {
    let export = Export {
        name: "tested",
        spec,
        layout,
        values,
        shape: &model.shape,
        base: "base",
    };
    files::write(folder, &export, &[]).unwrap();
}

#[test]
fn exports_of_every_method_and_family_load_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    for family in Family::ALL {
        let model = folder.path().join(family.name());
        let spec = TinySpec {
            tied: family != Family::Qwen2,
            bias: true,
            ..TinySpec::smallest(family)
        };
        write_tiny(&model, &spec).unwrap();
        let to = folder.path().join(format!("{}-adapters", family.name()));
        folders.extend(export_all(&model, &to, &methods::every()));
    }
    hold(&folders);
}

#[test]
fn exports_on_the_real_model_load_elsewhere() {
    #[expect(clippy::disallowed_methods, reason = "a test suite is a shell")]
    let named = ["SPOTMUX_SMOLLM2", "SPOTMUX_PEER_PYTHON"].map(std::env::var_os);
    let [Some(model), Some(_)] = named else {
        skipped::aloud("SPOTMUX_SMOLLM2 and SPOTMUX_PEER_PYTHON are not both set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folders = export_all(Path::new(&model), folder.path(), &methods::every());
    hold(&folders);
}
