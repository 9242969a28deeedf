//! Products with frozen weights, one shape at a time, to tell shapes from each other.

use coordinator::plan::device::Both;
use coordinator::plan::profile::Product;
use gpu_actor::model::Model;
use kernels::cpu::Cpu;
use kernels::ops::linear;
use shared::model::Projection;

use super::bed::numbers;
use crate::clock::Stopwatch;

/// The shapes of a block, each with how often it has them.
pub(crate) fn shapes(model: &Model) -> Vec<((usize, usize), Vec<Projection>)> {
    let mut shapes: Vec<((usize, usize), Vec<Projection>)> = Vec::new();
    for projection in Projection::ALL {
        let shape = model.shape.projection(projection);
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, alike)) => alike.push(projection),
            None => shapes.push((shape, vec![projection])),
        }
    }
    shapes
}

/// Median nanoseconds of the products of each shape, at so many rows.
pub(crate) fn time(model: &Model, cpu: &Cpu, rows: &[usize], passes: usize) -> Vec<Product> {
    let of = |((out, input), alike): ((usize, usize), Vec<Projection>)| {
        let at = |rows: usize| one(model, cpu, (out, input), &alike, rows, passes);
        let points: Vec<(u64, Both<u64>)> =
            rows.iter().map(|rows| (*rows as u64, at(*rows))).collect();
        let pick = |way: fn(&Both<u64>) -> u64| {
            points
                .iter()
                .map(|(rows, time)| (*rows, way(time)))
                .collect()
        };
        Product {
            out: out as u64,
            input: input as u64,
            times: alike.len() as u64,
            time: Both {
                forward: pick(|time| time.forward),
                backward: pick(|time| time.backward),
            },
        }
    };
    shapes(model).into_iter().map(of).collect()
}

/// One product of a shape: all layers' weights of it in turn, so that none lies where the last one left it.
fn one(
    model: &Model,
    cpu: &Cpu,
    (out, input): (usize, usize),
    alike: &[Projection],
    rows: usize,
    passes: usize,
) -> Both<u64> {
    let (x, mut y) = (numbers(rows * input, 0.01), numbers(rows * out, 0.01));
    let mut dx = numbers(rows * input, 0.01);
    let weights = || {
        let layers = model.layers.iter();
        layers.flat_map(|layer| alike.iter().map(|projection| layer.projection(*projection)))
    };
    let count = (model.layers.len() * alike.len()) as u64;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..=passes.max(2) {
        let clock = Stopwatch::start();
        cpu.enter(|| weights().for_each(|w| linear::forward(cpu, &x, w, &mut y)));
        times[0].push(clock.elapsed());
        let clock = Stopwatch::start();
        cpu.enter(|| weights().for_each(|w| linear::backward(cpu, &y, w, &mut dx, false)));
        times[1].push(clock.elapsed());
    }
    let median = |times: &mut Vec<std::time::Duration>| {
        times.sort_unstable();
        let nanos = times[(times.len() - 1) / 2].as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX) / count.max(1)
    };
    let [forward, backward] = &mut times;
    Both {
        forward: median(forward),
        backward: median(backward),
    }
}
