//! Lines of the log that follow a job: each bears the trace of its submission, as do those of whoever trains it.

use crate::life::ledger::Ledger;
use crate::record::{Change, Record};

/// Logs a record that is about a job's way; the ledger has taken it already.
pub(super) fn note(record: &Record, ledger: &Ledger) {
    let Some(job) = record.change.job().and_then(|job| ledger.get(job)) else {
        return;
    };
    let (id, trace) = (job.id, &job.trace);
    match &record.change {
        Change::Submitted { accepted, .. } => {
            tracing::info!(trace, job = %id, name = %accepted.name, "job submitted");
        }
        Change::Prepared { inputs, .. } => {
            tracing::info!(trace, job = %id, rows = inputs.rows, "job prepared");
        }
        Change::Placed { replica, .. } => {
            tracing::info!(trace, job = %id, replica, "job placed");
        }
        _ => {}
    }
    // It ended by this record, not by one before.
    if job.ended == Some(record.at) {
        let reason = job
            .reason
            .as_ref()
            .map_or("", |reason| reason.message.as_str());
        tracing::info!(trace, job = %id, state = %job.state, step = job.step, reason, "job ended");
    }
}
