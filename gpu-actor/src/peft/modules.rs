//! Which modules of the backbone a method changes: what its targets matched.

use std::collections::BTreeMap;

use shared::model::{Projection, Target};

use super::layout::Layout;

/// How many modules a method changes, by name; a method that only adds tokens changes none.
#[must_use]
pub fn matched(layout: &Layout) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let mut add = |name, here: bool| {
        if here {
            *counts.entry(name).or_insert(0) += 1;
        }
    };
    for sites in &layout.layers {
        for projection in Projection::ALL {
            let here = sites.linear[projection as usize].is_some();
            add(projection.name(), here);
        }
        add("self_attn", sites.attention.is_some());
        add("mlp", sites.feed_forward.is_some());
    }
    add(Target::LmHead.name(), layout.head.is_some());
    counts
}
