//! One job on one stage: its slice of values and moments, from wherever they come.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::ids::JobName;
use shared::job::JobSpec;

use crate::artifacts::Artifacts;
use crate::artifacts::manifest::StateManifest;
use crate::artifacts::part::Part;
use crate::artifacts::recover;
use crate::link::word::{Attach, Source};
use crate::peft::init;
use crate::peft::layout::Layout;
use crate::stage::adapter::Adapter;
use crate::stage::optim::{OptimizerState, Rule};
use crate::stage::step::Stage;

/// One job on one stage.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) job: JobName,
    /// Numbers of the replicas that share its steps.
    pub(super) replicas: Vec<u32>,
    pub(super) rule: Rule,
    pub(super) optimizer: OptimizerState,
    /// Set aside: its steps are no longer taken.
    pub(super) aside: bool,
    /// Steps after which its state is stored, that were asked for before they were taken.
    pub(super) keeps: BTreeSet<u64>,
}

impl Tenant {
    /// Makes the tenant and its adapter's slice for a stage.
    ///
    /// # Errors
    /// A sentence that says why it cannot be.
    pub(super) fn new(
        attach: &Attach,
        stage: &Stage,
        store: &dyn Artifacts,
    ) -> Result<(Self, Adapter), String> {
        let shape = &stage.model().shape;
        let spec: JobSpec = serde_json::from_str(&attach.spec)
            .map_err(|error| format!("its specification cannot be read: {error}"))?;
        let problems = spec.problems(shape);
        if let Some(problem) = problems.first() {
            return Err(problem.to_string());
        }
        let layout = Layout::new(&spec.adapter, shape, spec.seed);
        let slice = Arc::new(layout.slice(stage.model().span()));
        let part = first_state(&attach.source, &spec, (&layout, &slice), stage, store)?;
        let new = OptimizerState::new(&spec.optimizer, slice.len);
        let lengths = |state: &OptimizerState| (state.first.len(), state.second.len());
        if part.values.len() != slice.len || lengths(&part.optimizer) != lengths(&new) {
            return Err("its state has moments of another optimizer".into());
        }
        let adapter = Adapter::new(slice, part.values, spec.seed);
        let tenant = Self {
            job: attach.job.clone(),
            replicas: attach.replicas.clone(),
            rule: Rule::new(&spec.optimizer, &spec.adapter),
            optimizer: part.optimizer,
            aside: false,
            keeps: BTreeSet::new(),
        };
        Ok((tenant, adapter))
    }
}

fn first_state(
    source: &Source,
    spec: &JobSpec,
    (layout, slice): (&Layout, &Layout),
    stage: &Stage,
    store: &dyn Artifacts,
) -> Result<Part, String> {
    let layers = slice.span.clone();
    match source {
        Source::Fresh { init_tokens } => {
            let model = stage.model();
            let vocab = model.shape.vocab;
            if let Some(token) = init_tokens.iter().find(|&&token| token as usize >= vocab) {
                return Err(format!(
                    "token {token} to start from is outside the vocabulary of {vocab}"
                ));
            }
            let values = init::values(layout, model, stage.cpu(), spec.seed, init_tokens);
            Ok(Part {
                layers,
                values: slice.cut(&values),
                optimizer: OptimizerState::new(&spec.optimizer, slice.len),
            })
        }
        Source::Stored { manifest } => {
            let manifest = StateManifest::read(manifest.as_bytes());
            let manifest = manifest.map_err(|error| format!("its manifest: {error}"))?;
            recover::slice(store, &manifest, layout, layers)
        }
    }
}
