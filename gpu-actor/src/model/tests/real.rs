//! Models that this repository did not make: the reference set, and SmolLM2 where it is at hand.

use std::io::{self, Write};
use std::sync::OnceLock;

use shared::job::BackboneFormat;
use shared::model::{Projection, Rope, RopeScaling};

use super::super::TokenizerSource;
use super::super::inspect::summarise;
use super::*;

#[expect(
    clippy::disallowed_methods,
    reason = "tests find outside files by environment"
)]
fn from_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Past the capture of the test harness, which hides what passing tests print.
fn aloud(what: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {what}");
}

fn reference() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference");
    let path = from_environment("SPOTMUX_REFERENCE").unwrap_or(beside);
    if path.join("models").is_dir() {
        return Some(path);
    }
    aloud(&format!(
        "no reference models at {}: set SPOTMUX_REFERENCE",
        path.display()
    ));
    None
}

/// SmolLM2 as a GGUF file: `SPOTMUX_SMOLLM2`, or the cache of `spotmux model pull`.
fn smollm2() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let cache = from_environment("SPOTMUX_CACHE")
            .or_else(|| from_environment("XDG_CACHE_HOME"))
            .or_else(|| from_environment("HOME").map(|home| home.join(".cache")));
        let pulled = cache.map(|cache| cache.join("spotmux/models"));
        let found = from_environment("SPOTMUX_SMOLLM2").or_else(|| {
            let folders = fs::read_dir(pulled?).ok()?;
            folders.flatten().map(|entry| entry.path()).find(|path| {
                path.to_string_lossy()
                    .to_lowercase()
                    .contains("smollm2-135m")
            })
        });
        if found.is_none() {
            aloud("no SmolLM2: `spotmux model pull smollm2-135m-instruct`, or set SPOTMUX_SMOLLM2");
        }
        found
    };
    FOUND.get_or_init(find).clone()
}

#[test]
fn every_reference_model_opens_with_the_shape_its_readme_tells() {
    let Some(reference) = reference() else { return };
    let mut seen = 0;
    for entry in fs::read_dir(reference.join("models")).unwrap() {
        let path = entry.unwrap().path();
        let model = open(&path).unwrap();
        let shape = &model.shape;
        assert_eq!(model.layers.len(), shape.layers, "{}", path.display());
        assert_eq!(model.tokenizer, TokenizerSource::Missing);
        assert_eq!(model.name, None);
        assert_eq!((shape.hidden, shape.head_dim, shape.vocab), (64, 16, 320));
        let rope = |theta, scaling| Rope { theta, scaling };
        match path.file_name().unwrap().to_str().unwrap() {
            "llama-tied" => {
                assert_eq!((shape.heads, shape.kv_heads, shape.layers), (4, 2, 4));
                assert!(shape.tied_embeddings && model.head.is_none());
            }
            "llama-untied" => {
                assert_eq!((shape.heads, shape.kv_heads), (4, 4));
                assert!(!shape.tied_embeddings && model.head.is_some());
                assert_eq!(shape.rope, rope(100_000.0, RopeScaling::Default));
            }
            "qwen2" => {
                assert!(shape.qkv_bias && !shape.o_bias);
                assert_eq!(model.layers[0].bias(Projection::K).unwrap().len(), 32);
                assert_eq!(shape.rope, rope(1_000_000.0, RopeScaling::Default));
            }
            "llama3" => {
                assert_eq!(shape.kv_heads, 1);
                let scaling = RopeScaling::Llama3 {
                    factor: 8.0,
                    low_freq_factor: 1.0,
                    high_freq_factor: 4.0,
                    original_max_position_embeddings: 64,
                };
                assert_eq!(shape.rope, rope(500_000.0, scaling));
            }
            // Another set in the same layout may have other models: opening them is the test.
            _ => {}
        }
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn smollm2_opens_with_the_sizes_of_its_publisher() {
    let Some(path) = smollm2() else { return };
    let model = open(&path).unwrap();
    let shape = &model.shape;
    assert_eq!(
        (shape.layers, shape.hidden, shape.intermediate),
        (30, 576, 1536)
    );
    assert_eq!((shape.heads, shape.kv_heads, shape.head_dim), (9, 3, 64));
    assert_eq!((shape.vocab, shape.max_positions), (49152, 8192));
    assert_eq!((shape.norm_eps, shape.rope.theta), (1e-5, 100_000.0));
    assert_eq!((shape.bos, &shape.eos[..]), (Some(1), &[2][..]));
    assert!(shape.tied_embeddings && model.head.is_none());
    assert_eq!(shape.parameters(), 134_515_008);
    assert_eq!(model.embedding().format(), Format::Q8_0);
    for layer in &model.layers {
        assert!(layer.projections.iter().all(|w| w.format() == Format::Q4_1));
    }
    let TokenizerSource::Gguf { parts, .. } = &model.tokenizer else {
        panic!("no tokenizer");
    };
    assert_eq!((parts.tokens.len(), parts.merges.len()), (49152, 48900));
    assert_eq!(
        (parts.model.as_str(), parts.pre.as_str()),
        ("gpt2", "smollm")
    );
    assert!(parts.chat_template.is_some() && parts.add_bos != Some(true));
    let summary = summarise(&model).unwrap();
    assert_eq!(summary.tensors, 272);
    assert_eq!(summary.memory.f32, 4 * 134_515_008);
    assert!(summary.memory.as_held < 98_362_432);
}

/// A quantised model held as bf16 differs by one rounding of each value.
#[test]
fn smollm2_can_be_held_in_bf16() {
    let Some(path) = smollm2() else { return };
    let wanted = OpenOptions {
        format: BackboneFormat::Bf16,
        layers: Some(3..4),
        ..options()
    };
    let narrow = Model::open(&path, &wanted).unwrap();
    let shipped = open(&path).unwrap();
    let narrow = narrow.layers[0].projection(Projection::Q).to_f32();
    let exact = shipped.layers[3].projection(Projection::Q).to_f32();
    assert!(
        narrow
            .iter()
            .zip(&exact)
            .all(|(a, b)| (a - b).abs() <= b.abs() / 256.0)
    );
}
