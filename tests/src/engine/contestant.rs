//! The engine as a contestant: cases are trained fused, each on its own adapter, as if alone.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use data::rows::TokenRow;
use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::files;
use gpu_actor::peft::layout::Layout;
use gpu_actor::stage::step::Stage;
use kernels::cpu::{Cpu, Products};

use super::steps::{self, Trainee};
use crate::oracle::cross_entropy::SequenceLoss;
use crate::oracle::matrix::Matrix;
use crate::reference::case::Case;
use crate::reference::contestant::{Contestant, Outcome};

/// The engine on one model.
#[derive(Debug)]
pub struct Engine {
    stage: Stage,
    /// Rows of a pass at most; small, so that steps are cut into several passes.
    pub tokens_per_pass: usize,
}

impl Engine {
    /// The engine on a model.
    #[must_use]
    pub fn new(model: Arc<Model>, cpu: Cpu, tokens_per_pass: usize) -> Self {
        Self {
            stage: Stage::new(model, cpu),
            tokens_per_pass,
        }
    }

    /// Imports the case's adapter by the product's own reader, and attaches it.
    fn attach(&mut self, case: &Case) -> Result<Trainee> {
        let shape = self.stage.model().shape.clone();
        let imported = files::read(&case.init_folder, &shape)?;
        // LoRA+ is a rule of training: no adapter file knows it.
        let layout = Layout::new(&case.spec, &shape, 0);
        let places = |layout: &Layout| -> Vec<_> {
            let parameters = layout.parameters.iter();
            parameters
                .map(|p| (p.key.clone(), p.range.clone()))
                .collect()
        };
        ensure!(
            places(&layout) == places(&imported.layout),
            "the importer reads another method than the configuration says: {:?}",
            imported.spec
        );
        Ok(Trainee::attach(
            &mut self.stage,
            &case.spec,
            &case.optimizer,
            Arc::new(layout),
            imported.values,
            0,
        ))
    }

    fn step_all(
        &mut self,
        cases: &[&Case],
        trainees: &mut [Trainee],
        outcomes: &mut [Outcome],
        rows: &[TokenRow],
        number: usize,
    ) -> Result<()> {
        let active: Vec<usize> = (0..cases.len())
            .filter(|&index| number < cases[index].batches.len())
            .collect();
        let mut jobs = Vec::new();
        for (index, trainee) in trainees.iter_mut().enumerate() {
            if active.contains(&index) {
                let batch = cases[index].batches[number].iter();
                let batch = batch.map(|&row| &rows[row]).collect();
                jobs.push((trainee, batch, cases[index].rates[number]));
            }
        }
        let found = steps::step(
            &mut self.stage,
            &mut jobs,
            number as u64,
            self.tokens_per_pass,
        )?;
        for (index, found) in active.into_iter().zip(found) {
            let outcome = &mut outcomes[index];
            outcome.losses.push(found.loss);
            outcome.norms.push(found.norm);
            if number == 0 {
                outcome.first_sequences = found.sequences;
                outcome.first_gradient = found.gradient;
            }
        }
        Ok(())
    }
}

impl Contestant for Engine {
    fn open(model: &Path) -> Result<Self> {
        let cpu = Cpu::new(2)?;
        let model = Model::open(model, &OpenOptions::new(cpu.clone()))?;
        Ok(Self::new(Arc::new(model), cpu, 64))
    }

    fn logits(&mut self, ids: &[u32]) -> Result<Matrix> {
        Ok(steps::logits(&mut self.stage, None, ids))
    }

    fn loss(&mut self, row: &TokenRow) -> Result<SequenceLoss> {
        let losses = steps::evaluate(&mut self.stage, None, &[row], self.tokens_per_pass);
        losses.first().copied().context("one loss for one row")
    }

    fn train(&mut self, cases: &[&Case], rows: &[TokenRow]) -> Result<Vec<Outcome>> {
        let mut trainees = Vec::new();
        for case in cases {
            let trainee = self.attach(case);
            trainees.push(trainee.with_context(|| format!("case {}", case.name))?);
        }
        let mut outcomes = vec![Outcome::default(); cases.len()];
        let last = cases.iter().map(|case| case.batches.len()).max();
        for number in 0..last.unwrap_or(0) {
            self.step_all(cases, &mut trainees, &mut outcomes, rows, number)?;
        }
        for ((case, trainee), outcome) in cases.iter().zip(&trainees).zip(&mut outcomes) {
            let wanted = case.expected.final_sequences.iter();
            let wanted: Vec<&TokenRow> = wanted.map(|loss| &rows[loss.index]).collect();
            let budget = self.tokens_per_pass;
            outcome.final_sequences =
                steps::evaluate(&mut self.stage, Some(trainee), &wanted, budget);
            outcome.final_parameters = trainee.parameters(&self.stage);
        }
        for trainee in trainees {
            trainee.detach(&mut self.stage);
        }
        Ok(outcomes)
    }
}

/// The engine with frozen products from split numbers.
#[derive(Debug)]
pub struct SplitEngine(Engine);

impl Contestant for SplitEngine {
    fn open(model: &Path) -> Result<Self> {
        let cpu = Cpu::new(2)?.with_products(Products::Split);
        let model = Model::open(model, &OpenOptions::new(cpu.clone()))?;
        Ok(Self(Engine::new(Arc::new(model), cpu, 64)))
    }

    fn logits(&mut self, ids: &[u32]) -> Result<Matrix> {
        self.0.logits(ids)
    }

    fn loss(&mut self, row: &TokenRow) -> Result<SequenceLoss> {
        self.0.loss(row)
    }

    fn train(&mut self, cases: &[&Case], rows: &[TokenRow]) -> Result<Vec<Outcome>> {
        self.0.train(cases, rows)
    }
}
