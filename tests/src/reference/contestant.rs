//! The seam between references and whatever computes: the judge and the engine run the same comparison.

use std::path::Path;

use anyhow::Result;
use data::rows::TokenRow;

use super::case::Case;
use crate::oracle::cross_entropy::SequenceLoss;
use crate::oracle::matrix::Matrix;
use crate::oracle::tensor::Tensors;

/// Something that can compute a model and train adapters on it.
pub trait Contestant: Sized {
    /// Opens a model in the Hugging Face layout.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(model: &Path) -> Result<Self>;

    /// Logits without an adapter, `(tokens, vocab)`.
    ///
    /// # Errors
    /// When they cannot be computed.
    fn logits(&mut self, ids: &[u32]) -> Result<Matrix>;

    /// Loss of a row without an adapter.
    ///
    /// # Errors
    /// When it cannot be computed.
    fn loss(&mut self, row: &TokenRow) -> Result<SequenceLoss>;

    /// Trains the cases, each as if alone; `rows` are the set's.
    ///
    /// # Errors
    /// When a case cannot be trained.
    fn train(&mut self, cases: &[&Case], rows: &[TokenRow]) -> Result<Vec<Outcome>>;
}

/// What came out of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Loss before each update.
    pub losses: Vec<f64>,
    /// Norm of each step's gradient before clipping.
    pub norms: Vec<f64>,
    /// Losses of the first step's rows, in their order.
    pub first_sequences: Vec<SequenceLoss>,
    /// Losses after the last update, of the rows that the case asks for, in its order.
    pub final_sequences: Vec<SequenceLoss>,
    /// Gradient of the first step.
    pub first_gradient: Tensors,
    /// The adapter after training.
    pub final_parameters: Tensors,
}
