//! What a run allocates, counted, against what was foreseen of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use data::rows::TokenRow;
use gpu_actor::model::tiny::{TinySpec, write_tiny};
use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::init;
use gpu_actor::train::memory::{self, Estimate, Resident, Rows, StepSize};
use gpu_actor::train::session::{Session, Standing, layout_of};
use kernels::cpu::Cpu;
use shared::job::JobSpec;
use shared::model::Family;
use shared::recompute::Recompute;

/// The system's memory, counted.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; beside it numbers are counted.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(held, Relaxed);
        // SAFETY: the caller keeps the contract of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the place is the system's, since every allocation is.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let held = HELD.fetch_add(size, Relaxed) + size;
        MOST.fetch_max(held - layout.size(), Relaxed);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the place is the system's, and the caller keeps the contract of this very function.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Names, events, tables of rows and passes: what is not foreseen by its size.
const BESIDE: usize = 192 << 10;

/// A run of one job.
#[derive(Clone, Copy, Debug)]
struct Case {
    adapter: &'static str,
    data: &'static str,
    optimizer: &'static str,
    /// Samples of its one step, and as many that are held out.
    samples: usize,
    /// Tokens of each.
    tokens: usize,
    /// Rows of a pass and of a chunk.
    chunk: usize,
    recompute: Recompute,
}

const CASE: Case = Case {
    adapter: r#"{"method": "lora", "rank": 4}"#,
    data: "",
    optimizer: "adamw",
    samples: 8,
    tokens: 64,
    chunk: 512,
    recompute: Recompute::None,
};

fn cases() -> Vec<Case> {
    let adapters = [
        CASE.adapter,
        r#"{"method": "lora", "rank": 4, "dropout": 0.1, "dora": true}"#,
        r#"{"method": "lora", "rank": 4, "dropout": 0.1, "targets": ["down_proj", "lm_head"]}"#,
        r#"{"method": "lora", "rank": 4, "targets": ["lm_head"]}"#,
        r#"{"method": "ia3"}"#,
        r#"{"method": "bottleneck", "size": 16}"#,
        r#"{"method": "bottleneck", "size": 40, "placement": "parallel"}"#,
        r#"{"method": "prefix", "tokens": 90}"#,
        r#"{"method": "prefix", "tokens": 30, "projection": 8}"#,
        r#"{"method": "prompt", "tokens": 20}"#,
        r#"{"method": "bitfit"}"#,
        r#"{"method": "diff", "density": 0.1}"#,
        r#"{"method": "diff", "density": 1.0}"#,
    ];
    let mut all = Vec::new();
    for adapter in adapters {
        let case = Case { adapter, ..CASE };
        let held_out = r#", "eval_split": 0.3"#;
        all.extend([
            case,
            Case {
                data: held_out,
                optimizer: "sgd",
                ..case
            },
            Case {
                recompute: Recompute::All,
                ..case
            },
            Case {
                samples: 2,
                tokens: 600,
                chunk: 128,
                data: held_out,
                ..case
            },
        ]);
    }
    all.push(Case {
        adapter: r#"{"method": "prompt", "tokens": 700}"#,
        samples: 2,
        tokens: 100,
        chunk: 64,
        ..CASE
    });
    all
}

/// Runs it, and says what was foreseen.
fn run(model: &Arc<Model>, cpu: &Cpu, case: Case) -> Estimate {
    let text = format!(
        r#"{{"name": "job", "adapter": {}, "data": {{"train": "a.jsonl"{}}}, "train": {{"batch_size": {}, "steps": 1}},
            "optimizer": {{"kind": "{}"}}}}"#,
        case.adapter, case.data, case.samples, case.optimizer
    );
    let spec: JobSpec = serde_json::from_str(&text).unwrap();
    let layout = layout_of(&spec.adapter, model, spec.seed);
    let row = TokenRow::new(vec![3; case.tokens], vec![3; case.tokens]);
    let lengths = vec![case.tokens; case.samples];
    let virtual_rows = layout.prompt.as_ref().map_or(0, |site| site.tokens);
    let resident = Resident {
        spec: &spec,
        layout: &layout,
        step: StepSize::of(&spec, &layout, lengths),
    };
    let sizes = Rows {
        pass: case.chunk,
        chunk: case.chunk,
        longest: case.tokens + virtual_rows,
    };
    let foreseen = memory::predict(&model.shape, 0, &[resident], sizes, case.recompute);
    let values = init::values(&layout, model, cpu, spec.seed, &[]);
    let mut session = Session::new(Arc::clone(model), cpu.clone(), case.chunk);
    session.cut_above(case.chunk);
    let recomputed = case.recompute.of(model.shape.layers);
    session.stage_mut().recompute(recomputed);
    let held_out = match case.data {
        "" => Vec::new(),
        _ => vec![row.clone(); case.samples],
    };
    let name = spec.name.clone();
    let admitted = session.admit(
        spec,
        layout,
        values,
        vec![row; case.samples],
        held_out,
        None,
    );
    admitted.unwrap();
    while !session.is_idle() {
        session.round();
    }
    let standing = session.standing(&name);
    assert!(
        matches!(standing, Some(Standing::Finished(_))),
        "{standing:?}"
    );
    foreseen
}

/// BU-1, FP-1 to FP-3. One test alone, since all threads are counted.
#[test]
fn a_run_allocates_no_more_than_was_foreseen() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = Cpu::new(1).unwrap();
    for family in [Family::Llama, Family::Qwen3] {
        let path = folder.path().join(family.name());
        let spec = TinySpec {
            hidden: 96,
            intermediate: 288,
            vocab: 2000,
            ..TinySpec::smallest(family)
        };
        write_tiny(&path, &spec).unwrap();
        let model = Model::open(&path, &OpenOptions::new(cpu.clone())).unwrap();
        let model = Arc::new(model);
        // What a family adds is the same beside every method.
        let fewer = if family == Family::Llama { 1 } else { 5 };
        for case in cases().into_iter().step_by(fewer) {
            // Threads keep the buffers of their tiles from then on.
            run(&model, &cpu, case);
            let before = HELD.load(Relaxed);
            MOST.store(before, Relaxed);
            let foreseen = run(&model, &cpu, case);
            let most = MOST.load(Relaxed) - before;
            let total = usize::try_from(foreseen.total()).unwrap();
            assert!(
                most <= total + BESIDE,
                "{most} bytes of {total}, {family:?}: {case:?} {foreseen:?}"
            );
            // Nor is a run refused that would fit by far.
            assert!(
                total <= 2 * most + BESIDE,
                "{most} bytes of {total}, {family:?}: {case:?} {foreseen:?}"
            );
        }
    }
}
