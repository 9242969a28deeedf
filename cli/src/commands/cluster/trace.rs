//! `spotmux trace`: a timeline of one step, as a file.

use std::fs;

use anyhow::Context;
use serde_json::json;
use shared::wire::request::{Reply, Request};

use crate::args::TraceArgs;
use crate::control::unfitting;
use crate::desk::Desk;
use crate::exit::{Exit, Failure, OrExit};
use crate::timeline;

/// Runs the command.
pub(crate) fn run(args: &TraceArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let request = Request::Trace {
        job: args.job.clone(),
        step: args.step,
    };
    let spans = match desk.control.request(&request)? {
        Reply::Spans(spans) => spans,
        other => return Err(unfitting(&other)),
    };
    if spans.is_empty() {
        let message = "no stage remembers that step: traces are kept for the newest ones only";
        return Err(Failure::new(Exit::NotFound, message));
    }
    let overlaps = timeline::overlaps(&spans);
    for overlap in &overlaps {
        desk.output.note(format!("warning: {overlap}"));
    }
    let path = &args.output;
    let text = serde_json::to_vec(&timeline::chrome(&spans))
        .context("the trace cannot be written as JSON")
        .or_exit(Exit::Internal)?;
    fs::write(path, &text)
        .with_context(|| format!("cannot write {}", path.display()))
        .or_exit(Exit::Internal)?;
    let told = json!({ "file": path, "spans": spans.len(), "overlaps": overlaps });
    let text = format!("{} spans in {}", spans.len(), path.display());
    desk.output.result(&told, &text)?;
    desk.output
        .next(&["open https://ui.perfetto.dev and drop the file there".to_owned()]);
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::args::ClusterArgs;
    use crate::control::scripted::Scripted;
    use crate::desk::tests::at;
    use crate::timeline::tests::span;

    #[test]
    fn a_file_is_written_and_nothing_is_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let args = TraceArgs {
            step: None,
            job: None,
            output: folder.path().join("t.json"),
            cluster: ClusterArgs::default(),
        };
        let empty = Scripted::new(|_, _| vec![Reply::Spans(vec![])]);
        let failure = at(&empty, None, |desk| run(&args, desk)).unwrap_err();
        assert_eq!(failure.exit, Exit::NotFound);
        assert!(!args.output.exists());
        let full = Scripted::new(|_, _| {
            vec![Reply::Spans(vec![span(
                "n1", 0, "device", "forward", 1, 0, 5,
            )])]
        });
        assert_eq!(
            at(&full, None, |desk| run(&args, desk)).unwrap(),
            Exit::Done
        );
        let written: serde_json::Value =
            serde_json::from_slice(&fs::read(&args.output).unwrap()).unwrap();
        assert!(written["traceEvents"].is_array());
    }
}
