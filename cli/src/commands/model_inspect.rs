//! `spotmux model inspect`: what there is to know of a model.

use gpu_actor::model::TokenizerSource;
use gpu_actor::model::inspect::{self, Summary};

use crate::args::InspectArgs;
use crate::backbone;
use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;
use crate::remark;
use crate::render::{self, Output};
use crate::settings::Settings;

/// Runs the command.
pub(crate) fn run(
    args: &InspectArgs,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    let model = backbone::as_shipped(settings, &args.model)?;
    let mut summary = inspect::summarise(&model).or_exit(Exit::BadInput)?;
    if model.tokenizer != TokenizerSource::Missing
        && let Err(failure) = Language::of(&model.tokenizer, None)
    {
        summary.tokenizer_problem = Some(remark::short(&failure.message()));
    }
    output.result(&summary, &text(&summary))?;
    if summary.tokenizer_problem.is_some() {
        return Ok(Exit::BadInput);
    }
    let word = render::shell_word(&args.model);
    output.next(&[
        format!("spotmux generate --model {word} 'What is the capital of France?'"),
        format!("spotmux data check DATA.jsonl --model {word} --show-mask 3"),
    ]);
    Ok(Exit::Done)
}

fn text(summary: &Summary) -> String {
    let shape = &summary.shape;
    let held: Vec<String> = summary
        .bytes_by_format
        .iter()
        .map(|(format, bytes)| format!("{format} {}", render::bytes(*bytes)))
        .collect();
    let tied = if shape.tied_embeddings {
        "the embedding"
    } else {
        "its own"
    };
    let template = if let Some(problem) = &summary.tokenizer_problem {
        problem.as_str()
    } else if summary.chat_template {
        "with a chat template"
    } else {
        "no chat template"
    };
    let memory = &summary.memory;
    render::facts(&[
        (
            "name",
            summary
                .name
                .clone()
                .unwrap_or_else(|| "none in the files".into()),
        ),
        ("family", shape.family.name().into()),
        ("parameters", render::count(summary.parameters)),
        (
            "blocks",
            format!(
                "{} of width {}, feed-forward {}",
                shape.layers, shape.hidden, shape.intermediate
            ),
        ),
        (
            "attention",
            format!(
                "{} heads of {}, {} for keys and values",
                shape.heads, shape.head_dim, shape.kv_heads
            ),
        ),
        (
            "vocabulary",
            format!("{}, LM head is {tied}", render::count(shape.vocab as u64)),
        ),
        (
            "context",
            format!("{} tokens", render::count(shape.max_positions as u64)),
        ),
        ("tokenizer", format!("{}, {template}", summary.tokenizer)),
        (
            "weights",
            format!("{} tensors: {}", summary.tensors, held.join(", ")),
        ),
        (
            "memory",
            format!(
                "as shipped {}, bf16 {}, f32 {}",
                render::bytes(memory.as_held),
                render::bytes(memory.bf16),
                render::bytes(memory.f32)
            ),
        ),
        ("content hash", format!("sha256:{}", summary.content_hash)),
    ])
}
