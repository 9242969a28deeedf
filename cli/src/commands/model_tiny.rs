//! `spotmux model tiny`: writes a tiny random model.

use gpu_actor::model::tiny::{self, TinyError, TinySpec};
use serde::Serialize;
use shared::model::Family;

use crate::args::{TinyArgs, TinyFamily};
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{self, Output};

/// What a program is told.
#[derive(Debug, Serialize)]
struct Told {
    path: String,
    parameters: u64,
    seed: u64,
}

/// Runs the command.
pub(crate) fn run(args: &TinyArgs, output: &Output) -> Result<Exit, Failure> {
    let spec = spec(args)?;
    tiny::write_tiny(&args.folder, &spec).map_err(|error| refused(error, args))?;
    let path = args.folder.display().to_string();
    let told = Told {
        parameters: spec.shape().parameters(),
        seed: spec.seed,
        path: path.clone(),
    };
    let text = format!(
        "{path}: a random {} model of {} parameters, one token a byte",
        spec.family.name(),
        render::count(told.parameters)
    );
    output.result(&told, &text)?;
    let word = render::shell_word(&path);
    output.next(&[
        format!("spotmux model inspect {word}"),
        format!("spotmux data check DATA.jsonl --model {word}"),
        format!("spotmux train jobs.toml --model {word}"),
    ]);
    Ok(Exit::Done)
}

fn refused(error: TinyError, args: &TinyArgs) -> Failure {
    let exit = match error {
        TinyError::Exists { .. } | TinyError::Sizes(_) | TinyError::Unsupported { .. } => {
            Exit::BadInput
        }
        TinyError::Io { .. } | TinyError::Encode { .. } => Exit::Internal,
    };
    let result: Result<(), _> = Err(error);
    match result.or_exit(exit) {
        Err(failure) if args.folder.exists() => {
            failure.hint("spotmux never replaces a folder: remove it, or name another")
        }
        Err(failure) => failure,
        Ok(()) => Failure::new(Exit::Internal, "no error"),
    }
}

/// Sizes that hang together for a width.
fn spec(args: &TinyArgs) -> Result<TinySpec, Failure> {
    const HEAD: usize = 32;
    if args.hidden == 0 || !args.hidden.is_multiple_of(2 * HEAD) || args.hidden > 4096 {
        let message = format!(
            "--hidden {} is not a multiple of {} up to 4096",
            args.hidden,
            2 * HEAD
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if args.layers == 0 || args.layers > 64 {
        return Err(Failure::new(
            Exit::Usage,
            format!("--layers {} is outside 1 to 64", args.layers),
        ));
    }
    Ok(TinySpec {
        family: match args.family {
            TinyFamily::Llama => Family::Llama,
            TinyFamily::Mistral => Family::Mistral,
            TinyFamily::Qwen2 => Family::Qwen2,
            TinyFamily::Qwen3 => Family::Qwen3,
        },
        hidden: args.hidden,
        layers: args.layers,
        heads: args.hidden / HEAD,
        kv_heads: 2,
        head_dim: HEAD,
        // The usual 8/3, in whole blocks.
        intermediate: (args.hidden * 8 / 3).next_multiple_of(HEAD),
        seed: args.seed,
        ..TinySpec::default()
    })
}
