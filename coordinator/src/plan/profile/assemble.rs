//! From what was timed on a device to its profile. Pure: times are given.
//!
//! ```text
//! linear       = products timed one shape at a time x (products of a whole block / their sum), size by size
//! stream       = all else of a block / kernels that are counted in it (device::Streams)
//! head         = as timed, by rows that count
//! roofline     = the fastest product, the fastest stream, the cheapest kernel, all of it reached
//! ```
//!
//! A product timed by itself finds its weight and its rows where the one before left them, and products of one input
//! share its packing in a block. So shapes are timed apart to tell them from each other, and scaled so that together
//! they take what the engine's block takes.

use shared::model::ModelShape;

use super::super::curve::{Curve, Points};
use super::super::device::{Both, Streams};
use super::{
    Adapter, Attention, BadProfile, Compute, FORMAT, Linear, Link, Origin, Profile,
    Reconfiguration, Roofline, VERSION, Weights,
};

/// Products of one shape, timed alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of the weight.
    pub out: u64,
    /// Columns of the weight.
    pub input: u64,
    /// How often a block has it.
    pub times: u64,
    /// Nanoseconds by tokens.
    pub time: Both<Points>,
}

/// What was timed on a device.
#[derive(Clone, Debug)]
pub struct Samples {
    /// The device, as nodes name it.
    pub device: String,
    /// In what it computes.
    pub compute: Compute,
    /// How it was measured.
    pub note: String,
    /// Memory of the device.
    pub memory_bytes: u64,
    /// What the program itself takes of it.
    pub workspace_bytes: u64,
    /// How the weights of blocks are kept.
    pub blocks: Weights,
    /// How the head is kept.
    pub tables: Weights,
    /// Products by shape.
    pub products: Vec<Product>,
    /// All products of one block in the engine, nanoseconds by tokens.
    pub frozen: Both<Points>,
    /// All else of one block but attention and adapters, nanoseconds by tokens.
    pub rest: Both<Points>,
    /// Last norm, head and loss, nanoseconds by tokens that count.
    pub head: Both<Points>,
    /// Attention by length.
    pub attention: Vec<Attention>,
    /// Adapters by method, width and shape.
    pub adapters: Vec<Adapter>,
    /// Ways to other devices.
    pub links: Vec<Link>,
    /// What changing a plan takes.
    pub reconfiguration: Reconfiguration,
}

impl Samples {
    /// The profile that they make.
    ///
    /// # Errors
    /// [`BadProfile`] when a table has no points, or they make no curve.
    pub fn profile(&self, model: &ModelShape) -> Result<Profile, BadProfile> {
        let mut linear = self.linear()?;
        let stream = self.stream(model)?;
        linear.push(Linear {
            out: model.vocab as u64,
            input: model.hidden as u64,
            weights: self.tables,
            forward: self.head.forward.clone(),
            backward: self.head.backward.clone(),
        });
        let profile = Profile {
            format: FORMAT.to_owned(),
            version: VERSION,
            device: self.device.clone(),
            compute: self.compute,
            origin: Origin::Measured,
            note: self.note.clone(),
            memory_bytes: self.memory_bytes,
            workspace_bytes: self.workspace_bytes,
            roofline: Some(roofline(&linear, &stream)),
            linear,
            attention: self.attention.clone(),
            adapters: self.adapters.clone(),
            stream,
            links: self.links.clone(),
            reconfiguration: self.reconfiguration,
        };
        profile.check()?;
        Ok(profile)
    }

    /// Products by shape, scaled to what a block takes.
    fn linear(&self) -> Result<Vec<Linear>, BadProfile> {
        let forward = self.scaled("forward", &self.frozen.forward, |time| &time.forward)?;
        let backward = self.scaled("backward", &self.frozen.backward, |time| &time.backward)?;
        let both = self.products.iter().zip(forward.into_iter().zip(backward));
        let entry = |(product, (forward, backward)): (&Product, (Points, Points))| Linear {
            out: product.out,
            input: product.input,
            weights: self.blocks,
            forward,
            backward,
        };
        Ok(both.map(entry).collect())
    }

    fn scaled(
        &self,
        name: &str,
        whole: &Points,
        pick: fn(&Both<Points>) -> &Points,
    ) -> Result<Vec<Points>, BadProfile> {
        let curves = self
            .products
            .iter()
            .map(|product| {
                let key = format!("products {}x{} {name}", product.out, product.input);
                Curve::new(pick(&product.time)).map_err(|reason| BadProfile::Curve { key, reason })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let sum = |size: u64| -> u128 {
            let each = self.products.iter().zip(&curves);
            each.map(|(product, curve)| u128::from(product.times) * u128::from(curve.at(size)))
                .sum()
        };
        let of = |curve: &Curve| -> Points {
            let at = |&(size, whole): &(u64, u64)| {
                let apart = sum(size).max(1);
                let share = u128::from(curve.at(size)) * u128::from(whole);
                (
                    size,
                    u64::try_from(share.div_ceil(apart)).unwrap_or(u64::MAX),
                )
            };
            whole.iter().map(at).collect()
        };
        Ok(curves.iter().map(of).collect())
    }

    fn stream(&self, model: &ModelShape) -> Result<Points, BadProfile> {
        let key = |name: &str| format!("rest of a block, {name}");
        let curve = |points: &Points, name: &str| {
            Curve::new(points).map_err(|reason| BadProfile::Curve {
                key: key(name),
                reason,
            })
        };
        let forward = curve(&self.rest.forward, "forward")?;
        let backward = curve(&self.rest.backward, "backward")?;
        let streams = Streams::of(model, self.compute.width());
        let kernels = streams.forward + streams.backward;
        let each = |&(tokens, _): &(u64, u64)| {
            let all = forward.at(tokens).saturating_add(backward.at(tokens));
            (tokens * streams.bytes_per_row, all.div_ceil(kernels))
        };
        Ok(self.rest.forward.iter().map(each).collect())
    }
}

/// What the best of the tables reached, for what they lack.
fn roofline(linear: &[Linear], stream: &Points) -> Roofline {
    let per_second = |amount: u128, nanos: u64| {
        let rate = amount * 1_000_000_000 / u128::from(nanos.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    let rates = linear.iter().flat_map(|entry| {
        let operations = 2 * u128::from(entry.out) * u128::from(entry.input);
        let points = entry.forward.iter();
        points.map(move |(tokens, nanos)| per_second(operations * u128::from(*tokens), *nanos))
    });
    let moved = stream
        .iter()
        .map(|(bytes, nanos)| per_second(u128::from(*bytes), *nanos));
    Roofline {
        flops_per_second: rates.max().unwrap_or(1).max(1),
        bytes_per_second: moved.max().unwrap_or(1).max(1),
        compute_permille: 1000,
        memory_permille: 1000,
        launch_nanos: stream.iter().map(|point| point.1).min().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::device::Device;
    use crate::plan::testing::llama_7b;

    fn points(each: u64) -> Points {
        [16, 64, 256, 1024].map(|n| (n, 1_000 + each * n)).to_vec()
    }

    fn both(each: u64) -> Both<Points> {
        Both {
            forward: points(each),
            backward: points(2 * each),
        }
    }

    fn samples() -> Samples {
        let product = |out, input, times, each| Product {
            out,
            input,
            times,
            time: both(each),
        };
        Samples {
            device: "cpu test x1".into(),
            compute: Compute::F32,
            note: "a test".into(),
            memory_bytes: 1 << 34,
            workspace_bytes: 1 << 20,
            blocks: Weights::F32,
            tables: Weights::F32,
            products: vec![
                product(4096, 4096, 4, 100),
                product(11008, 4096, 2, 300),
                product(4096, 11008, 1, 200),
            ],
            frozen: both(900),
            rest: both(18),
            head: both(400),
            attention: vec![Attention {
                heads: 32,
                kv_heads: 32,
                head_dim: 128,
                length: 64,
                forward: points(5),
                backward: points(9),
            }],
            adapters: Vec::new(),
            links: Vec::new(),
            reconfiguration: Reconfiguration {
                attach_nanos: 1,
                switch_nanos: 1,
                load_bytes_per_second: 1,
            },
        }
    }

    #[test]
    fn what_is_put_together_takes_what_was_timed() {
        let model = llama_7b();
        let samples = samples();
        let profile = samples.profile(&model).expect("a profile");
        assert_eq!(
            Profile::parse(&serde_json::to_string(&profile).expect("JSON")),
            Ok(profile.clone())
        );
        let device = Device::new(&profile, &model, Weights::F32, Weights::F32).expect("a device");
        for (tokens, frozen) in &samples.frozen.forward {
            let rest = samples
                .rest
                .forward
                .iter()
                .find(|p| p.0 == *tokens)
                .expect("a point")
                .1;
            let rest_back = samples
                .rest
                .backward
                .iter()
                .find(|p| p.0 == *tokens)
                .expect("a point")
                .1;
            let back = samples
                .frozen
                .backward
                .iter()
                .find(|p| p.0 == *tokens)
                .expect("a point")
                .1;
            let found = device.block.forward.at(*tokens) + device.block.backward.at(*tokens);
            let timed = frozen + back + rest + rest_back;
            assert!(
                found.abs_diff(timed) <= timed / 100 + 40,
                "{tokens}: {found} for {timed}"
            );
        }
        assert!(device.estimated.is_empty());
        // The last norm is counted as a stream beside the head.
        let norm = device.embedding.forward.at(1024);
        assert_eq!(device.head.forward.at(1024), 1_000 + 400 * 1024 + norm);
    }

    #[test]
    fn what_was_not_timed_is_refused_by_its_name() {
        let mut samples = samples();
        samples.rest.backward.clear();
        let said = samples
            .profile(&llama_7b())
            .expect_err("nothing was timed")
            .to_string();
        assert!(said.contains("rest of a block, backward"), "{said}");
    }
}
