//! Opens layers of the backbone, beside what is held, and keeps what was opened last.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use kernels::cpu::Cpu;
use shared::job::BackboneFormat;

use crate::model::{Model, OpenOptions};

/// The layers of one seat.
pub(super) type Span = Range<usize>;

/// Opens layers.
#[derive(Debug)]
pub(super) struct Opener {
    path: PathBuf,
    format: BackboneFormat,
    cpu: Cpu,
    kept: Mutex<Vec<Arc<Model>>>,
}

/// Parts kept open: the one held, and the one for the plan that comes.
const KEPT: usize = 2;

impl Opener {
    pub(super) fn new(path: PathBuf, format: BackboneFormat, cpu: Cpu) -> Self {
        Self {
            path,
            format,
            cpu,
            kept: Mutex::new(Vec::new()),
        }
    }

    /// The whole backbone as it lies in its file, nothing expanded: what it is.
    pub(super) fn look(&self) -> Result<Model, String> {
        let options = OpenOptions {
            check_finite: false,
            ..OpenOptions::new(self.cpu.clone())
        };
        Model::open(&self.path, &options).map_err(|error| error.to_string())
    }

    /// The layers, opened now or before. Takes as long as reading them does.
    pub(super) fn open(&self, span: &Span) -> Result<Arc<Model>, String> {
        if let Some(model) = self.find(span) {
            return Ok(model);
        }
        let options = OpenOptions {
            format: self.format,
            layers: Some(span.clone()),
            ..OpenOptions::new(self.cpu.clone())
        };
        let model = Model::open(&self.path, &options).map_err(|error| error.to_string())?;
        let model = Arc::new(model);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(Arc::clone(&model));
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        Ok(model)
    }

    fn find(&self, span: &Span) -> Option<Arc<Model>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|model| model.span() == *span).cloned()
    }
}
