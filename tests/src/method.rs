//! Random methods.

use proptest::prelude::*;
use shared::job::{
    AdapterSpec, BitFitSpec, BottleneckPlacement, BottleneckSpec, DiffSpec, Ia3Spec, LoraSpec,
    NonLinearity, PrefixSpec, PromptSpec, Targets,
};
use shared::model::{Projection, Target};

/// Any method of any size at any targets.
pub fn any_method() -> impl Strategy<Value = AdapterSpec> {
    prop_oneof![
        4 => lora(),
        1 => (blocks(), proptest::sample::subsequence(Projection::ALL.to_vec(), 0..=7))
            .prop_map(|(targets, fed)| ia3(targets, fed)),
        2 => bottleneck(),
        1 => (1..70usize, proptest::option::of(1..9usize)).prop_map(|(tokens, projection)| {
            AdapterSpec::Prefix(PrefixSpec { tokens, projection })
        }),
        1 => (1..70usize).prop_map(|tokens| {
            AdapterSpec::Prompt(PromptSpec { tokens, init_text: None })
        }),
        1 => blocks().prop_map(|targets| AdapterSpec::BitFit(BitFitSpec { targets: named(targets) })),
        1 => (blocks(), 0.01..0.5f64).prop_map(|(targets, density)| {
            AdapterSpec::Diff(DiffSpec { targets: named(targets), density })
        }),
    ]
}

fn blocks() -> impl Strategy<Value = Vec<Target>> {
    let all: Vec<Target> = Projection::ALL.into_iter().map(Target::Block).collect();
    proptest::sample::subsequence(all, 1..=7)
}

fn named(targets: Vec<Target>) -> Targets {
    Targets::Named(targets)
}

fn ia3(targets: Vec<Target>, fed: Vec<Projection>) -> AdapterSpec {
    let feedforward = targets
        .iter()
        .copied()
        .filter(|target| fed.iter().any(|&p| Target::Block(p) == *target))
        .collect();
    AdapterSpec::Ia3(Ia3Spec {
        targets: named(targets),
        feedforward,
    })
}

fn lora() -> impl Strategy<Value = AdapterSpec> {
    let sizes = (1..33usize, 0.5..40.0f64);
    let kinds = (any::<bool>(), any::<bool>(), any::<bool>());
    let ratios = (
        proptest::sample::select(vec![0.0, 0.0, 0.3]),
        proptest::sample::select(vec![1.0, 1.0, 8.0]),
    );
    (sizes, blocks(), kinds, ratios).prop_map(
        |((rank, alpha), mut targets, (rslora, dora, head), (dropout, lr_ratio))| {
            // The head takes no DoRA.
            if head && !dora {
                targets.push(Target::LmHead);
            }
            AdapterSpec::Lora(LoraSpec {
                rank,
                alpha: Some(alpha),
                dropout,
                targets: named(targets),
                rslora,
                dora,
                lr_ratio,
            })
        },
    )
}

fn bottleneck() -> impl Strategy<Value = AdapterSpec> {
    use BottleneckPlacement::{Houlsby, Parallel, Pfeiffer};
    use NonLinearity::{Gelu, Relu, Silu};
    let placement = proptest::sample::select(vec![Houlsby, Pfeiffer, Parallel]);
    let function = proptest::sample::select(vec![Relu, Gelu, Silu]);
    (1..20usize, placement, function).prop_map(|(size, placement, non_linearity)| {
        AdapterSpec::Bottleneck(BottleneckSpec {
            size,
            placement,
            non_linearity,
        })
    })
}
