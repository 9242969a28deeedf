//! Fresh adapter values, each a function of the job's seed and its place: no order of drawing.

use kernels::cpu::Cpu;
use kernels::ops::dora;
use kernels::weight::Weight;
use shared::random::{Domain, Stream};

use super::layout::{Layout, Parameter, Start};
use crate::model::Model;

/// Values for a fresh adapter, in flat storage order.
///
/// `prompt_tokens` are the tokens of a prompt-tuning text, repeated or cut to the number of virtual tokens; when
/// empty, rows of the embedding are chosen at random (as PEFT's `SAMPLE_VOCAB`). On a model that holds a part of the
/// layers, values that come from weights of other stages stay zero: the part's slice leaves them out.
#[must_use]
pub fn values(
    layout: &Layout,
    model: &Model,
    cpu: &Cpu,
    seed: u64,
    prompt_tokens: &[u32],
) -> Vec<f32> {
    let mut values = vec![0.0; layout.len];
    for (index, parameter) in layout.parameters.iter().enumerate() {
        let out = &mut values[parameter.range.clone()];
        let stream = Stream::new(seed, Domain::Init, [index as u32, 0, 0]);
        match parameter.start {
            Start::Zero => {}
            Start::One => out.fill(1.0),
            Start::Uniform(bound) => {
                fill(out, parameter, |i| (2.0 * stream.uniform(i) - 1.0) * bound);
            }
            Start::Normal(spread) => fill(out, parameter, |i| stream.normal(i) * spread),
            Start::Embeddings => {
                if let Some(table) = &model.embedding {
                    embeddings(out, table, &stream, prompt_tokens);
                }
            }
            // B is zero at first, so the norms are those of the backbone alone.
            Start::RowNorms(layer, projection) => {
                let Some(weights) = model.layer(layer) else {
                    continue;
                };
                let weight = weights.projection(projection);
                dora::row_norms(cpu, weight, &[], &[], 0, 0.0, out);
            }
        }
    }
    values
}

/// Fills in the order of the file's shape, so that a transposed matrix starts the same as a plain one.
fn fill(out: &mut [f32], parameter: &Parameter, draw: impl Fn(u32) -> f32) {
    if let (true, [rows, columns]) = (parameter.transposed, parameter.shape.as_slice()) {
        for row in 0..*rows {
            for column in 0..*columns {
                out[column * rows + row] = draw((row * columns + column) as u32);
            }
        }
        return;
    }
    for (i, value) in out.iter_mut().enumerate() {
        *value = draw(i as u32);
    }
}

fn embeddings(out: &mut [f32], table: &Weight, stream: &Stream, tokens: &[u32]) {
    for (i, row) in out.chunks_mut(table.cols()).enumerate() {
        let token = if tokens.is_empty() {
            stream.below(i as u32, table.rows() as u64) as usize
        } else {
            tokens[i % tokens.len()] as usize
        };
        table.row(token, row);
    }
}
