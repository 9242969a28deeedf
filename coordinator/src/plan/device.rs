//! One kind of device, computing one model: its curves, put together from a profile.
//!
//! A block's products, norms and activations depend on the tokens of the whole pass and are one curve. Attention
//! depends on the lengths of sequences and adapters on their jobs: both are asked for job by job.
//!
//! **Attention.** A row at position p of its sequence looks at p + 1 keys. Rows `[p, p + c)` with carried keys look
//! at as many in all as a sequence of length 2p + c has per row: that is the length under which they are looked up.
//! Between measured lengths it is linear in length; beyond the longest it grows in proportion to it.

mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use shared::model::{ModelShape, Projection};

use self::tables::{Measured, attention, by_tokens, linear, measured, unmeasured};
use super::adapter::{Adapter, Site};
use super::curve::Curve;
use super::profile::roofline::Work;
use super::profile::{BadProfile, Profile, Weights};

/// Forward and backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both<T> {
    /// Of the forward pass.
    pub forward: T,
    /// Of the backward pass.
    pub backward: T,
}

impl Both<u64> {
    /// Both, one after the other.
    #[must_use]
    pub fn sum(self) -> u64 {
        self.forward.saturating_add(self.backward)
    }

    /// Each of two, added.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            forward: self.forward.saturating_add(other.forward),
            backward: self.backward.saturating_add(other.backward),
        }
    }

    /// So many times.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self {
            forward: self.forward.saturating_mul(times),
            backward: self.backward.saturating_mul(times),
        }
    }
}

/// Time of an adapter at one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteTime {
    /// Nanoseconds that it takes.
    pub time: Both<u64>,
    /// Nanoseconds times the share of the device that it keeps busy.
    pub busy: Both<u64>,
}

/// The curves of a device.
#[derive(Clone, Debug)]
pub struct Device {
    profile: Profile,
    model: ModelShape,
    /// A block without attention and adapters, by tokens.
    pub block: Both<Curve>,
    /// The embedding, by tokens.
    pub embedding: Both<Curve>,
    /// Last norm, head and loss, by tokens that count.
    pub head: Both<Curve>,
    /// By the length of sequences; empty when only the roofline tells.
    attention: BTreeMap<u64, Both<Curve>>,
    /// What an attention kernel takes with next to nothing to do.
    pub attention_floor: Both<u64>,
    adapters: Vec<Measured>,
    stream: Curve,
    /// Products that the tables lacked.
    pub estimated: Vec<String>,
}

/// Norms, rotations, activations and residual sums of a block: kernels that are bound by memory.
const STREAMS: u64 = 6;

/// How the kernels of a block that are bound by memory are counted: so many forward, so many backward, all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Kernels forward.
    pub forward: u64,
    /// Kernels backward.
    pub backward: u64,
    /// Bytes that each reads and writes for one row.
    pub bytes_per_row: u64,
}

impl Streams {
    /// Of a model whose activations take so many bytes a value.
    #[must_use]
    pub fn of(model: &ModelShape, value: u64) -> Self {
        let width = (8 * model.hidden + 3 * model.intermediate) as u64
            + 2 * (model.q_width() + 2 * model.kv_width()) as u64;
        Self {
            forward: STREAMS,
            backward: 2 * STREAMS,
            bytes_per_row: width * value / STREAMS,
        }
    }
}

impl Device {
    /// Puts together the curves.
    ///
    /// # Errors
    /// [`BadProfile`] with the key that the profile lacks.
    pub fn new(
        profile: &Profile,
        model: &ModelShape,
        blocks: Weights,
        tables: Weights,
    ) -> Result<Self, BadProfile> {
        let stream = profile.stream()?;
        let value = profile.compute.width();
        let mut estimated = Vec::new();
        let mut product = |out: usize, input: usize, weights| {
            linear(profile, out as u64, input as u64, weights, &mut estimated)
        };
        let mut products = Vec::new();
        for projection in Projection::ALL {
            let (out, input) = model.projection(projection);
            products.push(product(out, input, blocks)?);
        }
        let head = product(model.vocab, model.hidden, tables)?;
        let streams = Streams::of(model, value);
        let small = by_tokens(&stream, streams.bytes_per_row);
        let rows = by_tokens(&stream, 2 * model.hidden as u64 * value);
        let block = |pick: fn(&Both<Curve>) -> &Curve, times: u64| {
            let mut terms: Vec<(&Curve, u64)> =
                products.iter().map(|both| (pick(both), 1)).collect();
            terms.push((&small, times));
            Curve::sum(&terms)
        };
        let attention = attention(profile, model)?;
        let mut device = Self {
            block: Both {
                forward: block(|both| &both.forward, streams.forward),
                backward: block(|both| &both.backward, streams.backward),
            },
            embedding: Both {
                forward: rows.clone(),
                backward: Curve::flat(0),
            },
            head: Both {
                forward: Curve::sum(&[(&head.forward, 1), (&rows, 1)]),
                backward: Curve::sum(&[(&head.backward, 1), (&rows, 2)]),
            },
            attention,
            attention_floor: Both::default(),
            adapters: measured(profile)?,
            stream,
            estimated,
            profile: profile.clone(),
            model: model.clone(),
        };
        if device.attention.is_empty() && profile.roofline.is_none() {
            let (heads, width) = (model.heads, model.head_dim);
            return Err(unmeasured(
                profile,
                format!("attention of {heads} heads of {width}"),
            ));
        }
        device.attention_floor = device.floor();
        Ok(device)
    }

    /// The profile it was made of.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The model it computes.
    #[must_use]
    pub fn model(&self) -> &ModelShape {
        &self.model
    }

    fn floor(&self) -> Both<u64> {
        if let Some(roofline) = self.profile.roofline.filter(|_| self.attention.is_empty()) {
            return Both {
                forward: roofline.launch_nanos,
                backward: 3 * roofline.launch_nanos,
            };
        }
        let first = |pick: fn(&Both<Curve>) -> &Curve| {
            let values = self.attention.values().map(|both| pick(both).at(1));
            values.min().unwrap_or(0)
        };
        Both {
            forward: first(|both| &both.forward),
            backward: first(|both| &both.backward),
        }
    }

    /// Nanoseconds of attention over so many tokens in sequences of a length, beside the floor of the kernel.
    #[must_use]
    pub fn attention(&self, length: u64, tokens: u64) -> Both<u64> {
        if tokens == 0 || length == 0 {
            return Both::default();
        }
        let whole = self.attention_whole(length, tokens);
        Both {
            forward: whole.forward.saturating_sub(self.attention_floor.forward),
            backward: whole.backward.saturating_sub(self.attention_floor.backward),
        }
    }

    fn attention_whole(&self, length: u64, tokens: u64) -> Both<u64> {
        let at = |both: &Both<Curve>| Both {
            forward: both.forward.at(tokens),
            backward: both.backward.at(tokens),
        };
        let below = self.attention.range(..=length).next_back();
        let above = self.attention.range(length..).next();
        match (below, above) {
            (Some((low, below)), Some((high, above))) => {
                let (from, to) = (at(below), at(above));
                let (run, part) = ((high - low).max(1), length - low);
                let between = |from: u64, to: u64| {
                    let sum = u128::from(from) * u128::from(run - part.min(run))
                        + u128::from(to) * u128::from(part);
                    (sum / u128::from(run)) as u64
                };
                Both {
                    forward: between(from.forward, to.forward),
                    backward: between(from.backward, to.backward),
                }
            }
            (None, Some((_, above))) => at(above),
            (Some((low, below)), None) => {
                let known = at(below);
                let scale = |nanos: u64| {
                    u64::try_from(u128::from(nanos) * u128::from(length) / u128::from(*low))
                        .unwrap_or(u64::MAX)
                };
                Both {
                    forward: scale(known.forward),
                    backward: scale(known.backward),
                }
            }
            (None, None) => self.attention_from_peaks(length, tokens),
        }
    }

    fn attention_from_peaks(&self, length: u64, tokens: u64) -> Both<u64> {
        let Some(roofline) = self.profile.roofline else {
            return Both::default();
        };
        let (q, kv) = (self.model.q_width() as u64, self.model.kv_width() as u64);
        // Two products over (length + 1) / 2 keys on average; backward has five.
        let forward = Work {
            launches: 1,
            operations: 2 * q * (length + 1),
            fixed_bytes: 0,
            bytes: (2 * q + 2 * kv) * self.profile.compute.width(),
        };
        let backward = Work {
            launches: 3,
            operations: forward.operations * 5 / 2,
            fixed_bytes: 0,
            bytes: 2 * forward.bytes,
        };
        Both {
            forward: roofline.nanos(&forward, tokens),
            backward: roofline.nanos(&backward, tokens),
        }
    }

    /// Time of an adapter at one of its sites, for so many tokens.
    ///
    /// From the nearest measured widths of the same method and shape (linear between two, in proportion beyond), else
    /// from the roofline, else as memory traffic.
    #[must_use]
    pub fn adapter(&self, adapter: &Adapter, site: Site, tokens: u64) -> SiteTime {
        if tokens == 0 {
            return SiteTime::default();
        }
        self.measured(adapter, site, tokens)
            .unwrap_or_else(|| self.adapter_from_peaks(adapter, site, tokens))
    }

    fn measured(&self, adapter: &Adapter, site: Site, tokens: u64) -> Option<SiteTime> {
        let (shape, name) = (site.shape(&self.model), adapter.method.name());
        let alike = |entry: &&Measured| entry.method == name && entry.shape == shape;
        // In the order of their widths.
        let known: Vec<&Measured> = self.adapters.iter().filter(alike).collect();
        let split = known.partition_point(|entry| entry.width <= adapter.width);
        let at = |entry: &Measured| {
            let time = Both {
                forward: entry.time.forward.at(tokens),
                backward: entry.time.backward.at(tokens),
            };
            (entry.width, time, entry.utilisation.at(tokens).min(1000))
        };
        let below = split.checked_sub(1).map(|index| at(known[index]));
        let above = known.get(split).map(|entry| at(entry));
        let (time, utilisation) = match (below, above) {
            (Some(low), Some(high)) => {
                let run = u128::from((high.0 - low.0).max(1));
                let part = u128::from(adapter.width - low.0);
                // Between two numbers of 64 bits, so one itself.
                let mix = |a: u64, b: u64| {
                    ((u128::from(a) * (run - part) + u128::from(b) * part) / run) as u64
                };
                let time = Both {
                    forward: mix(low.1.forward, high.1.forward),
                    backward: mix(low.1.backward, high.1.backward),
                };
                (time, mix(low.2, high.2))
            }
            (Some((width, time, utilisation)), None) => {
                let more = |nanos: u64| nanos.saturating_mul(adapter.width) / width.max(1);
                let time = Both {
                    forward: more(time.forward),
                    backward: more(time.backward),
                };
                (time, utilisation)
            }
            (None, Some((_, time, utilisation))) => (time, utilisation),
            (None, None) => return None,
        };
        Some(site_time(time, [utilisation, utilisation]))
    }

    fn adapter_from_peaks(&self, adapter: &Adapter, site: Site, tokens: u64) -> SiteTime {
        let [forward, backward] = adapter.work(site, &self.model, self.profile.compute.width());
        let Some(roofline) = self.profile.roofline else {
            let nanos = |work: &Work| {
                self.stream
                    .at(work.fixed_bytes + work.bytes.saturating_mul(tokens))
            };
            let time = Both {
                forward: nanos(&forward),
                backward: nanos(&backward),
            };
            return site_time(time, [1000, 1000]);
        };
        let time = Both {
            forward: roofline.nanos(&forward, tokens),
            backward: roofline.nanos(&backward, tokens),
        };
        let busy = [&forward, &backward].map(|work| roofline.utilisation(work, tokens));
        site_time(time, busy)
    }

    /// Nanoseconds of an optimizer step over so many values: values, gradient and moments are read, all but the
    /// gradient written.
    #[must_use]
    pub fn optimizer(&self, values: u64) -> u64 {
        self.stream.at(values.saturating_mul(28))
    }
}

fn site_time(time: Both<u64>, permille: [u64; 2]) -> SiteTime {
    let part = |nanos: u64, permille: u64| nanos.saturating_mul(permille) / 1000;
    SiteTime {
        time,
        busy: Both {
            forward: part(time.forward, permille[0]),
            backward: part(time.backward, permille[1]),
        },
    }
}
