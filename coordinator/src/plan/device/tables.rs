//! The tables of a profile as curves: what is there, and what the roofline tells where it is not.

use std::collections::BTreeMap;

use shared::model::ModelShape;

use super::Both;
use crate::plan::curve::{Curve, LARGEST};
use crate::plan::profile::roofline::Work;
use crate::plan::profile::{BadProfile, Profile, Weights};

/// A measured adapter.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) method: String,
    pub(super) width: u64,
    pub(super) shape: (u64, u64),
    pub(super) time: Both<Curve>,
    pub(super) utilisation: Curve,
}

pub(super) fn unmeasured(profile: &Profile, key: String) -> BadProfile {
    BadProfile::Unmeasured {
        device: profile.device.clone(),
        key,
    }
}

/// A curve by bytes as one by tokens.
pub(super) fn by_tokens(stream: &Curve, bytes_per_token: u64) -> Curve {
    let bytes = bytes_per_token.max(1);
    let mut sizes: Vec<u64> = stream.sizes().map(|size| size.div_ceil(bytes)).collect();
    sizes.push(1);
    sizes.push(sizes.iter().max().map_or(2, |last| last * 2));
    sizes.retain(|size| *size <= LARGEST);
    sizes.sort_unstable();
    sizes.dedup();
    let points: Vec<(u64, u64)> = sizes
        .into_iter()
        .map(|size| (size, stream.at(size.saturating_mul(bytes))))
        .collect();
    Curve::new(&points).unwrap_or_else(|_| Curve::flat(0))
}

pub(super) fn linear(
    profile: &Profile,
    out: u64,
    input: u64,
    weights: Weights,
    estimated: &mut Vec<String>,
) -> Result<Both<Curve>, BadProfile> {
    let named = |points: &[(u64, u64)]| {
        Curve::new(points).map_err(|reason| BadProfile::Curve {
            key: format!("linear {out}x{input}"),
            reason,
        })
    };
    let found = profile
        .linear
        .iter()
        .find(|entry| entry.out == out && entry.input == input && entry.weights == weights);
    if let Some(entry) = found {
        return Ok(Both {
            forward: named(&entry.forward)?,
            backward: named(&entry.backward)?,
        });
    }
    let key = format!("linear {out}x{input} {}", weights.name());
    let Some(roofline) = profile.roofline else {
        return Err(unmeasured(profile, key));
    };
    let work = Work {
        launches: 1,
        operations: 2 * out * input,
        fixed_bytes: weights.bytes(out * input),
        bytes: (out + input) * profile.compute.width(),
    };
    estimated.push(key);
    let curve = roofline.curve(&work);
    Ok(Both {
        forward: curve.clone(),
        backward: curve,
    })
}

pub(super) fn attention(
    profile: &Profile,
    model: &ModelShape,
) -> Result<BTreeMap<u64, Both<Curve>>, BadProfile> {
    let heads = (
        model.heads as u64,
        model.kv_heads as u64,
        model.head_dim as u64,
    );
    let mut found = BTreeMap::new();
    for entry in &profile.attention {
        if (entry.heads, entry.kv_heads, entry.head_dim) != heads {
            continue;
        }
        let named = |points: &[(u64, u64)]| {
            Curve::new(points).map_err(|reason| BadProfile::Curve {
                key: format!("attention of length {}", entry.length),
                reason,
            })
        };
        let both = Both {
            forward: named(&entry.forward)?,
            backward: named(&entry.backward)?,
        };
        found.insert(entry.length, both);
    }
    Ok(found)
}

pub(super) fn measured(profile: &Profile) -> Result<Vec<Measured>, BadProfile> {
    let mut all = Vec::with_capacity(profile.adapters.len());
    for (index, entry) in profile.adapters.iter().enumerate() {
        let named = |points: &[(u64, u64)]| {
            Curve::new(points).map_err(|reason| BadProfile::Curve {
                key: format!("adapters[{index}]"),
                reason,
            })
        };
        all.push(Measured {
            method: entry.method.clone(),
            width: entry.width,
            shape: (entry.out, entry.input),
            time: Both {
                forward: named(&entry.forward)?,
                backward: named(&entry.backward)?,
            },
            utilisation: named(&entry.utilisation)?,
        });
    }
    all.sort_by_key(|entry| entry.width);
    Ok(all)
}
