//! The real model: losses, greedy texts and LoRA steps of SmolLM2-135M-Instruct from its GGUF file.
//!
//! Said aloud when the file is absent ([`outside`]).

use std::fs;
use std::sync::{Arc, OnceLock};

use data::rows::TokenRow;
use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::layout::{Layout, Parameter};
use gpu_actor::peft::tensors::{self, NamedTensor};
use gpu_actor::sample::choice::Sampling;
use gpu_actor::sample::generator::{BARE, Generator};
use gpu_actor::stage::step::Stage;
use kernels::cpu::Cpu;
use serde::Deserialize;
use shared::job::{AdapterSpec, LoraSpec, OptimizerSpec, Targets};
use shared::model::Target;
use system_tests::engine::steps::{self, Trainee};
use system_tests::oracle::cross_entropy;
use system_tests::{outside, skipped};

/// Below this margin between first and second choice, rounding may decide.
const MARGIN: f64 = 0.05;
const TOKEN_LOSS: f64 = 1e-3;
const MEAN_LOSS: f64 = 1e-4;

#[derive(Debug, Deserialize)]
struct Expected {
    texts: Vec<Text>,
    greedy: Vec<Greedy>,
    lora: Lora,
}

#[derive(Debug, Deserialize)]
struct Text {
    ids: Vec<u32>,
    token_nll: Vec<f64>,
    argmax_next: Vec<u32>,
}

#[derive(Debug, Deserialize)]
struct Greedy {
    prompt_ids: Vec<u32>,
    new_ids: Vec<u32>,
    margin_to_second: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Lora {
    config: LoraConfig,
    optimizer: LoraOptimizer,
    loss: Vec<f64>,
    grad_norm: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct LoraConfig {
    r: usize,
    lora_alpha: f64,
    target_modules: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct LoraOptimizer {
    name: String,
    lr: f64,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
}

/// What must come out, and the model; none, said aloud, when one is absent.
fn given() -> Option<(Expected, Stage)> {
    let path = crate::root()?.join("smollm2.json");
    if !path.is_file() {
        skipped::aloud(&format!("the set has no {}", path.display()));
        return None;
    }
    static MODEL: OnceLock<Option<Arc<Model>>> = OnceLock::new();
    let model = MODEL.get_or_init(open).clone()?;
    let expected = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    Some((expected, Stage::new(model, Cpu::new(2).unwrap())))
}

fn open() -> Option<Arc<Model>> {
    let options = OpenOptions::new(Cpu::new(2).unwrap());
    Some(Arc::new(
        Model::open(&outside::smollm2()?, &options).unwrap(),
    ))
}

/// The most likely token, and by how much it leads.
fn leader(logits: &[f64]) -> (u32, f64) {
    let (mut best, mut second) = ((0, f64::NEG_INFINITY), f64::NEG_INFINITY);
    for (token, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            second = best.1;
            best = (token as u32, logit);
        } else {
            second = logit.max(second);
        }
    }
    (best.0, best.1 - second)
}

#[test]
fn token_losses_and_likely_tokens_are_the_known_ones() {
    let Some((expected, mut stage)) = given() else {
        return;
    };
    let mut failures = Vec::new();
    for (number, text) in expected.texts.iter().enumerate() {
        let logits = steps::logits(&mut stage, None, &text.ids);
        let labels: Vec<i32> = text.ids.iter().map(|&id| id as i32).collect();
        let losses = cross_entropy::token_losses(&logits, &labels);
        assert_eq!(losses.len(), text.token_nll.len());
        for (t, (got, want)) in losses.iter().zip(&text.token_nll).enumerate() {
            if (got - want).abs() > TOKEN_LOSS {
                failures.push(format!("text {number} token {t}: loss {got}, not {want}"));
            }
        }
        for (t, &want) in text.argmax_next.iter().enumerate() {
            let (token, margin) = leader(logits.row(t));
            if token != want && margin > MARGIN {
                failures.push(format!("text {number} row {t}: {token}, not {want}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn greedy_texts_are_the_known_ones_where_margins_allow() {
    let Some((expected, mut stage)) = given() else {
        return;
    };
    for greedy in &expected.greedy {
        // Every step on the known text so far, so that one narrow margin hides no later step.
        let all = [greedy.prompt_ids.as_slice(), &greedy.new_ids].concat();
        let logits = steps::logits(&mut stage, None, &all);
        let steps = greedy.new_ids.iter().zip(&greedy.margin_to_second);
        for (i, (&want, &margin)) in steps.enumerate() {
            let (token, _) = leader(logits.row(greedy.prompt_ids.len() - 1 + i));
            assert!(token == want || margin <= MARGIN, "step {i}: {token}");
        }
        // And as texts are made: token by token from kept keys and values.
        let narrow = greedy.margin_to_second.iter().position(|&m| m <= MARGIN);
        let steady = narrow.unwrap_or(greedy.new_ids.len());
        let made = generate(&mut stage, &greedy.prompt_ids, steady);
        assert_eq!(made, greedy.new_ids[..made.len()]);
        let ended = made.len() < steady;
        let ends = &stage.model().shape.eos;
        assert!(!ended || ends.contains(&greedy.new_ids[made.len()]));
    }
}

fn generate(stage: &mut Stage, prompt: &[u32], limit: usize) -> Vec<u32> {
    let mut generator = Generator::new(stage, BARE, prompt, Sampling::default(), limit).unwrap();
    std::iter::from_fn(|| generator.next_token().unwrap()).collect()
}

#[test]
fn lora_steps_have_the_known_losses() {
    let Some((expected, mut stage)) = given() else {
        return;
    };
    let lora = &expected.lora;
    assert_eq!(lora.optimizer.name, "AdamW");
    let spec = AdapterSpec::Lora(LoraSpec {
        rank: lora.config.r,
        alpha: Some(lora.config.lora_alpha),
        dropout: 0.0,
        targets: Targets::Named(lora.config.target_modules.clone()),
        rslora: false,
        dora: false,
        lr_ratio: 1.0,
    });
    let optimizer = OptimizerSpec {
        learning_rate: lora.optimizer.lr,
        betas: lora.optimizer.betas,
        epsilon: lora.optimizer.eps,
        weight_decay: lora.optimizer.weight_decay,
        ..OptimizerSpec::default()
    };
    let mut layout = Layout::new(&spec, &stage.model().shape, 0);
    let start = layout.parameters.iter().map(|p| (p.key.clone(), waves(p)));
    let start = start.collect();
    let values = tensors::from_tensors(&mut layout, start).unwrap();
    let layout = Arc::new(layout);
    let mut trainee = Trainee::attach(&mut stage, &spec, &optimizer, layout, values, 0);
    let rows: Vec<TokenRow> = expected.texts[..3].iter().map(whole).collect();
    for (step, (want, norm)) in lora.loss.iter().zip(&lora.grad_norm).enumerate() {
        let rate = optimizer.learning_rate;
        let mut jobs = [(&mut trainee, rows.iter().collect(), rate)];
        let found = steps::step(&mut stage, &mut jobs, step as u64, 512).unwrap();
        let (loss, found_norm) = (found[0].loss, found[0].norm);
        assert!(
            (loss - want).abs() < MEAN_LOSS,
            "step {step}: loss {loss}, not {want}"
        );
        assert!(
            (found_norm - norm).abs() < 1e-3 * norm,
            "step {step}: norm {found_norm}, not {norm}"
        );
    }
}

/// A row whose every token counts.
fn whole(text: &Text) -> TokenRow {
    let labels = text.ids.iter().map(|&id| id as i32).collect();
    TokenRow::new(text.ids.clone(), labels)
}

/// The start that any program can rebuild: A = 0.05 sin(0.7 k + 0.1 layer), B = 0.002 sin(0.7 k + 0.3 + 0.1 layer).
fn waves(parameter: &Parameter) -> NamedTensor {
    let after = parameter.key.split(".layers.").nth(1).unwrap();
    let layer: f64 = after.split('.').next().unwrap().parse().unwrap();
    let (height, shift) = if parameter.key.contains("lora_A") {
        (0.05, 0.0)
    } else {
        (0.002, 0.3)
    };
    let count: usize = parameter.shape.iter().product();
    let wave = |k: usize| height * (0.7 * k as f64 + shift + 0.1 * layer).sin();
    NamedTensor {
        shape: parameter.shape.clone(),
        values: (0..count).map(|k| wave(k) as f32).collect(),
    }
}
