//! What the stages of a pipeline tell each other before a job's optimizer step.
//!
//! Clipping needs the norm of the whole gradient, and a reparameterised prefix the gradients of all layers. Each stage
//! reports what it has by piece or layer, and all add everything up in the order of the whole adapter, so that the
//! number of stages does not show. A stage that holds the whole model agrees with itself by the same rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one layer adds to the gradient of the inner values of a reparameterised prefix, `(tokens, hidden)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The layer.
    pub layer: usize,
    /// Its part of the sum.
    pub values: Vec<f64>,
}

/// A number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Broken {
    /// The piece of the whole adapter that it lies in; none for the loss, which comes before all pieces.
    pub piece: Option<usize>,
    /// What it is.
    pub what: String,
}

/// What one stage knows of a job's finished gradient.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Sums of squares by piece of the whole adapter.
    pub squares: Vec<(usize, f64)>,
    /// What its layers add to the gradient of a reparameterised prefix.
    pub shares: Vec<Share>,
    /// Its first number that is not finite.
    pub broken: Option<Broken>,
}

impl Report {
    /// Puts this and another stage's report together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.squares.extend(other.squares);
        self.shares.extend(other.shares);
        self.broken = first(self.broken, other.broken);
        self
    }
}

/// What all stages know together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Sums of squares by piece.
    pub(super) squares: BTreeMap<usize, f64>,
    /// By layer.
    pub(super) shares: Vec<Share>,
    pub(super) broken: Option<Broken>,
}

impl Agreement {
    /// Puts the reports of all stages together; in which order they come does not matter.
    #[must_use]
    pub fn of(reports: impl IntoIterator<Item = Report>) -> Self {
        let mut all = Self::default();
        for report in reports {
            all.squares.extend(report.squares);
            all.shares.extend(report.shares);
            all.broken = first(all.broken, report.broken);
        }
        all.shares.sort_by_key(|share| share.layer);
        all
    }
}

/// The one that comes first in the whole adapter, so that all stages name the same.
#[must_use]
pub fn first(one: Option<Broken>, other: Option<Broken>) -> Option<Broken> {
    one.into_iter().chain(other).min()
}
