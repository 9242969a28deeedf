//! Optimizer steps of many adapters on one stage, over rows that the caller chooses.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use data::rows::TokenRow;
use gpu_actor::batch::{Batch, VIRTUAL};
use gpu_actor::peft::layout::Layout;
use gpu_actor::peft::tensors;
use gpu_actor::sample::generator::BARE;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::optim::{self, OptimizerState, Rule};
use gpu_actor::stage::outcome::JobOutcome;
use gpu_actor::stage::step::Stage;
use gpu_actor::train::pack::{self, Request};
use shared::job::{AdapterSpec, OptimizerSpec};

use crate::oracle::cross_entropy::SequenceLoss;
use crate::oracle::matrix::Matrix;
use crate::oracle::tensor::{Tensor, Tensors};

/// One job on the stage.
#[derive(Debug)]
pub struct Trainee {
    slot: usize,
    layout: Arc<Layout>,
    rule: Rule,
    optimizer: OptimizerState,
}

/// What a step found out about one job.
#[derive(Clone, Debug, PartialEq)]
pub struct StepFindings {
    /// Loss before the update.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub norm: f64,
    /// Losses of the rows, in their order.
    pub sequences: Vec<SequenceLoss>,
    /// The gradient.
    pub gradient: Tensors,
}

impl Trainee {
    /// Attaches an adapter.
    pub fn attach(
        stage: &mut Stage,
        spec: &AdapterSpec,
        optimizer: &OptimizerSpec,
        layout: Arc<Layout>,
        values: Vec<f32>,
        seed: u64,
    ) -> Self {
        let state = OptimizerState::new(optimizer, values.len());
        let slot = stage.attach(Adapter::new(layout.clone(), values, seed));
        Self {
            slot,
            layout,
            rule: Rule::new(optimizer, spec),
            optimizer: state,
        }
    }

    /// Its place in the bank.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The adapter's values in flat storage order.
    ///
    /// # Panics
    /// When it is not on that stage.
    #[must_use]
    pub fn values<'a>(&self, stage: &'a Stage) -> &'a [f32] {
        &stage
            .adapter(self.slot)
            .expect("the adapter is attached")
            .values
    }

    /// Takes the adapter off.
    pub fn detach(self, stage: &mut Stage) {
        stage.detach(self.slot);
    }

    /// The adapter's values by name.
    ///
    /// # Panics
    /// When it is not on that stage.
    #[must_use]
    pub fn parameters(&self, stage: &Stage) -> Tensors {
        let adapter = stage.adapter(self.slot).expect("the adapter is attached");
        tensors::to_tensors(&self.layout, &adapter.values)
            .into_iter()
            .map(|(key, tensor)| (key, widened(&tensor)))
            .collect()
    }

    fn gradient(&self, stage: &Stage) -> Tensors {
        let adapter = stage.adapter(self.slot).expect("the adapter is attached");
        let of = |parameter| widened(&tensors::to_tensor(parameter, adapter.gradient()));
        let parameters = self.layout.parameters.iter();
        parameters
            .map(|parameter| (parameter.key.clone(), of(parameter)))
            .collect()
    }

    fn request<'a>(&self, rows: &[&'a TokenRow], step: u64) -> Request<'a> {
        let (prompt, prefix) = (&self.layout.prompt, &self.layout.prefix);
        Request {
            slot: self.slot,
            prompt_tokens: prompt.as_ref().map_or(0, |prompt| prompt.tokens),
            prefix_tokens: prefix.as_ref().map_or(0, |prefix| prefix.tokens),
            step,
            rows: rows.to_vec(),
            part: None,
        }
    }
}

fn widened(tensor: &tensors::NamedTensor) -> Tensor {
    let values = tensor.values.iter().map(|&value| f64::from(value));
    Tensor::new(&tensor.shape, values.collect())
}

/// Sums over the passes of a step.
#[derive(Debug, Default)]
struct Gathered {
    /// Share of each block in the loss, in the job's order: where passes are cut must not show in their sum.
    blocks: Vec<f64>,
    sequences: Vec<SequenceLoss>,
}

impl Gathered {
    fn add(&mut self, outcome: &JobOutcome) {
        self.blocks.extend(&outcome.block_losses);
        let losses = outcome.sequences.iter().map(|sequence| SequenceLoss {
            sum: sequence.sum,
            tokens: sequence.tokens,
        });
        self.sequences.extend(losses);
    }
}

/// One optimizer step of each trainee over its rows, all fused into passes of `tokens_per_pass` rows.
///
/// # Errors
/// When a number is not finite.
pub fn step(
    stage: &mut Stage,
    jobs: &mut [(&mut Trainee, Vec<&TokenRow>, f64)],
    number: u64,
    tokens_per_pass: usize,
) -> Result<Vec<StepFindings>> {
    let requests: Vec<Request<'_>> = jobs
        .iter()
        .map(|(trainee, rows, _)| trainee.request(rows, number))
        .collect();
    let mut gathered: Vec<Gathered> = jobs.iter().map(|_| Gathered::default()).collect();
    for batch in pack::passes(&requests, tokens_per_pass, pack::Cut::Anywhere) {
        for outcome in stage.train(&batch) {
            let index = jobs.iter().position(|(t, ..)| t.slot == outcome.slot);
            gathered[index.context("an outcome of another job")?].add(&outcome);
        }
    }
    let cpu = stage.cpu().clone();
    let mut findings = Vec::new();
    for ((trainee, _, rate), gathered) in jobs.iter_mut().zip(gathered) {
        let gradient = trainee.gradient(stage);
        let adapter = stage
            .adapter_mut(trainee.slot)
            .context("the adapter is attached")?;
        let (state, rule) = (&mut trainee.optimizer, &trainee.rule);
        let numbers = optim::step(&cpu, adapter, state, rule, *rate);
        let numbers = numbers.map_err(|not| anyhow!("{} is not finite", not.what))?;
        stage.derive(trainee.slot);
        findings.push(StepFindings {
            loss: gathered.blocks.iter().sum(),
            norm: numbers.gradient_norm,
            sequences: gathered.sequences,
            gradient,
        });
    }
    Ok(findings)
}

/// Losses of rows without training; no trainee: the bare backbone.
pub fn evaluate(
    stage: &mut Stage,
    trainee: Option<&Trainee>,
    rows: &[&TokenRow],
    tokens_per_pass: usize,
) -> Vec<SequenceLoss> {
    let bare = Request {
        slot: BARE,
        prompt_tokens: 0,
        prefix_tokens: 0,
        step: 0,
        rows: rows.to_vec(),
        part: None,
    };
    let request = trainee.map_or(bare, |trainee| trainee.request(rows, 0));
    let mut gathered = Gathered::default();
    for batch in pack::passes(&[request], tokens_per_pass, pack::Cut::Anywhere) {
        for outcome in stage.evaluate(&batch) {
            gathered.add(&outcome);
        }
    }
    gathered.sequences
}

/// Logits of every token, `(tokens, vocab)`; no trainee: the bare backbone.
pub fn logits(stage: &mut Stage, trainee: Option<&Trainee>, ids: &[u32]) -> Matrix {
    let slot = trainee.map_or(BARE, |trainee| trainee.slot);
    let request = trainee.map(|trainee| trainee.request(&[], 0));
    let prompt = request.as_ref().map_or(0, |request| request.prompt_tokens);
    let prefix = request.map_or(0, |request| request.prefix_tokens);
    let mut rows: Vec<u32> = (0..prompt as u32).map(|i| VIRTUAL | i).collect();
    rows.extend_from_slice(ids);
    let mut batch = Batch::default();
    batch.push_continuation(slot, &rows, 0, prefix);
    let wanted: Vec<usize> = (prompt..rows.len()).collect();
    let logits = stage.logits(&batch, &wanted, None);
    let vocab = stage.model().shape.vocab;
    Matrix::new(
        ids.len(),
        vocab,
        logits.into_iter().map(f64::from).collect(),
    )
}
