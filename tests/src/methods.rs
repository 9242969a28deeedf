//! One of each method, at its most: what a test that needs them all iterates over.

use shared::job::{
    AdapterSpec, BitFitSpec, BottleneckPlacement, BottleneckSpec, DiffSpec, Ia3Spec, LoraSpec,
    NonLinearity, PrefixSpec, PromptSpec, Targets,
};
use shared::model::{Projection, Target};

/// Every method; LoRA in three forms, bottlenecks in every place, prefixes given and computed.
#[must_use]
pub fn every() -> Vec<AdapterSpec> {
    let all = Targets::Group("all-linear".into());
    let lora = LoraSpec {
        rank: 3,
        alpha: Some(5.0),
        dropout: 0.0,
        targets: Targets::Named(Target::ALL.to_vec()),
        rslora: false,
        dora: false,
        lr_ratio: 4.0,
    };
    let bottleneck = |placement, non_linearity| {
        AdapterSpec::Bottleneck(BottleneckSpec {
            size: 5,
            placement,
            non_linearity,
        })
    };
    vec![
        AdapterSpec::Lora(lora.clone()),
        AdapterSpec::Lora(LoraSpec {
            dropout: 0.2,
            rslora: true,
            ..lora.clone()
        }),
        AdapterSpec::Lora(LoraSpec {
            dora: true,
            targets: all.clone(),
            ..lora
        }),
        AdapterSpec::Ia3(Ia3Spec {
            targets: all.clone(),
            feedforward: vec![
                Target::Block(Projection::Q),
                Target::Block(Projection::Down),
            ],
        }),
        bottleneck(BottleneckPlacement::Houlsby, NonLinearity::Relu),
        bottleneck(BottleneckPlacement::Pfeiffer, NonLinearity::Gelu),
        bottleneck(BottleneckPlacement::Parallel, NonLinearity::Silu),
        AdapterSpec::Prefix(PrefixSpec {
            tokens: 4,
            projection: None,
        }),
        AdapterSpec::Prefix(PrefixSpec {
            tokens: 3,
            projection: Some(6),
        }),
        AdapterSpec::Prompt(PromptSpec {
            tokens: 5,
            init_text: None,
        }),
        AdapterSpec::BitFit(BitFitSpec {
            targets: all.clone(),
        }),
        AdapterSpec::Diff(DiffSpec {
            targets: all,
            density: 0.1,
        }),
    ]
}
