//! `spotmux sample`: a text continued on the cluster.

use std::io::Read;

use anyhow::Context;
use serde_json::json;
use shared::wire::request::{Reply, Request, SampleRequest};

use crate::args::SampleArgs;
use crate::control::{Flow, unfitting};
use crate::desk::{Desk, named};
use crate::exit::{Exit, Failure, OrExit};
use crate::input::{self, Input};
use crate::interrupt::Interrupt;

/// Bytes of a prompt that are sent; the coordinator knows the model's own limit.
const LONGEST: usize = 1 << 20;

/// Runs the command.
pub(crate) fn run(args: &SampleArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let request = Request::Sample(SampleRequest {
        job: args.job.clone(),
        system: args.system.clone(),
        raw: args.raw,
        prompt: prompt(&args.prompt, desk.interrupt)?,
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        top_p: args.top_p,
        top_k: args.top_k,
        seed: args.seed,
    });
    let (mut text, mut exit) = (String::new(), Exit::Done);
    desk.control.stream(&request, &mut |reply| {
        match reply {
            Reply::Piece(piece) => {
                if !desk.output.json() {
                    desk.output.stream(&piece)?;
                }
                text.push_str(&piece);
            }
            Reply::Done => return Ok(Flow::Enough),
            other => return Err(unfitting(&other)),
        }
        if desk.interrupt.asked() {
            exit = Exit::Interrupted;
            return Ok(Flow::Enough);
        }
        Ok(Flow::More)
    })?;
    let job = args.job.as_ref().map(named);
    // The text is out already, piece by piece.
    desk.output
        .result(&json!({ "job": job, "text": text }), "")?;
    Ok(exit)
}

fn prompt(given: &str, interrupt: &Interrupt) -> Result<String, Failure> {
    let mut bytes = given.as_bytes().to_vec();
    if given == "-" {
        bytes.clear();
        let read = Input::standard(interrupt)
            .and_then(|input| input.take(LONGEST as u64 + 1).read_to_end(&mut bytes));
        input::ended_by_user(interrupt)?;
        read.context("cannot read the prompt from standard input")
            .or_exit(Exit::BadInput)?;
    }
    if bytes.len() > LONGEST {
        let message = format!("the prompt has more than {LONGEST} bytes, the limit");
        return Err(Failure::new(Exit::BadInput, message));
    }
    String::from_utf8(bytes)
        .context("the prompt is not UTF-8")
        .or_exit(Exit::BadInput)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::args::ClusterArgs;
    use crate::control::scripted::Scripted;
    use crate::desk::tests::at;

    #[test]
    fn pieces_are_taken_until_the_end() {
        let control = Scripted::new(|request, _| {
            let Request::Sample(sample) = request else {
                panic!("{request:?}")
            };
            assert_eq!(sample.prompt, "hi");
            assert_eq!(sample.system.as_deref(), Some("be short"));
            vec![
                Reply::Piece("a".into()),
                Reply::Piece("b".into()),
                Reply::Done,
            ]
        });
        let args = SampleArgs {
            prompt: "hi".into(),
            job: None,
            system: Some("be short".into()),
            raw: false,
            max_tokens: 8,
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            seed: 0,
            cluster: ClusterArgs::default(),
        };
        assert_eq!(
            at(&control, None, |desk| run(&args, desk)).unwrap(),
            Exit::Done
        );
    }
}
