//! The judge as a contestant: it must agree with the references before it may judge.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use data::rows::TokenRow;
use shared::model::config;

use super::case::Case;
use super::contestant::{Contestant, Outcome};
use super::safetensors_file;
use crate::oracle::adapter::Adapter;
use crate::oracle::backbone::Backbone;
use crate::oracle::cross_entropy::SequenceLoss;
use crate::oracle::matrix::Matrix;
use crate::oracle::optimizer::Optimizer;
use crate::oracle::sequence::Pass;
use crate::oracle::step;
use crate::oracle::tensor::Tensors;

/// The judge on one model.
#[derive(Clone, Debug)]
pub struct Judge {
    backbone: Backbone,
}

impl Contestant for Judge {
    fn open(model: &Path) -> Result<Self> {
        let path = model.join("config.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let shape = config::parse(&text)?;
        let mut tensors = Tensors::new();
        for entry in fs::read_dir(model)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("model") && name.ends_with(".safetensors") {
                tensors.extend(safetensors_file::read(&path)?);
            }
        }
        let backbone = Backbone::new(&shape, tensors);
        let backbone = backbone.map_err(|reason| anyhow!("{}: {reason}", model.display()))?;
        Ok(Self { backbone })
    }

    fn logits(&mut self, ids: &[u32]) -> Result<Matrix> {
        let pass = Pass {
            backbone: &self.backbone,
            adapter: None,
            draw: None,
        };
        Ok(pass.forward(ids).0)
    }

    fn loss(&mut self, row: &TokenRow) -> Result<SequenceLoss> {
        Ok(step::loss(&self.backbone, None, row))
    }

    fn train(&mut self, cases: &[&Case], rows: &[TokenRow]) -> Result<Vec<Outcome>> {
        Ok(cases
            .iter()
            .map(|case| self.train_one(case, rows))
            .collect())
    }
}

impl Judge {
    fn train_one(&self, case: &Case, rows: &[TokenRow]) -> Outcome {
        let mut adapter = Adapter::new(case.spec.clone(), case.init.clone());
        let mut optimizer = Optimizer::new(&case.optimizer, &case.spec, &adapter.parameters);
        let mut outcome = Outcome::default();
        for (number, (batch, &rate)) in case.batches.iter().zip(&case.rates).enumerate() {
            let batch: Vec<&TokenRow> = batch.iter().map(|&index| &rows[index]).collect();
            adapter.fix_norms(&self.backbone);
            let step = step::gradient(&self.backbone, &adapter, &batch, None);
            let norm = optimizer.step(&mut adapter.parameters, &step.gradient, rate);
            outcome.losses.push(step.loss);
            outcome.norms.push(norm);
            if number == 0 {
                outcome.first_sequences = step.sequences;
                outcome.first_gradient = step.gradient;
            }
        }
        adapter.fix_norms(&self.backbone);
        for wanted in &case.expected.final_sequences {
            let loss = step::loss(&self.backbone, Some(&adapter), &rows[wanted.index]);
            outcome.final_sequences.push(loss);
        }
        outcome.final_parameters = adapter.parameters;
        outcome
    }
}
