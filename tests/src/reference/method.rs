//! `adapter_config.json` as a method, read independently of the product's own importer.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use shared::job::{
    AdapterSpec, BitFitSpec, BottleneckPlacement, BottleneckSpec, DiffSpec, Ia3Spec, LoraSpec,
    NonLinearity, PrefixSpec, PromptSpec, Targets,
};
use shared::model::Target;

#[derive(Debug, Deserialize)]
struct ConfigFile {
    peft_type: String,
    r: Option<usize>,
    lora_alpha: Option<f64>,
    #[serde(default)]
    lora_dropout: f64,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    target_modules: Option<Value>,
    feedforward_modules: Option<Vec<Target>>,
    num_virtual_tokens: Option<usize>,
    #[serde(default)]
    prefix_projection: bool,
    bottleneck_size: Option<usize>,
    placement: Option<BottleneckPlacement>,
    non_linearity: Option<NonLinearity>,
    density: Option<f64>,
}

/// The method of a configuration; `lr_ratio` is that of LoRA+.
///
/// # Errors
/// The name of a kind that is not known, or of a key that it lacks.
pub fn read(text: &str, lr_ratio: f64) -> Result<AdapterSpec> {
    let config: ConfigFile = serde_json::from_str(text).context("adapter_config.json")?;
    let tokens = config.num_virtual_tokens.context("num_virtual_tokens");
    Ok(match config.peft_type.as_str() {
        "LORA" => AdapterSpec::Lora(LoraSpec {
            rank: config.r.context("r")?,
            alpha: Some(config.lora_alpha.context("lora_alpha")?),
            dropout: config.lora_dropout,
            targets: config.targets()?,
            rslora: config.use_rslora,
            dora: config.use_dora,
            lr_ratio,
        }),
        "IA3" => AdapterSpec::Ia3(Ia3Spec {
            targets: config.targets()?,
            feedforward: config.feedforward_modules.unwrap_or_default(),
        }),
        "PREFIX_TUNING" if config.prefix_projection => {
            bail!(
                "PREFIX_TUNING with prefix_projection: its file holds no trained values to start from"
            )
        }
        "PREFIX_TUNING" => AdapterSpec::Prefix(PrefixSpec {
            tokens: tokens?,
            projection: None,
        }),
        "PROMPT_TUNING" => AdapterSpec::Prompt(PromptSpec {
            tokens: tokens?,
            init_text: None,
        }),
        "BOTTLENECK" => AdapterSpec::Bottleneck(BottleneckSpec {
            size: config.bottleneck_size.context("bottleneck_size")?,
            placement: config.placement.context("placement")?,
            non_linearity: config.non_linearity.context("non_linearity")?,
        }),
        "BITFIT" => AdapterSpec::BitFit(BitFitSpec {
            targets: config.targets()?,
        }),
        "DIFF_PRUNING" => AdapterSpec::Diff(DiffSpec {
            density: config.density.context("density")?,
            targets: config.targets()?,
        }),
        other => bail!("peft_type {other} is not known here"),
    })
}

impl ConfigFile {
    fn targets(&self) -> Result<Targets> {
        let value = self.target_modules.clone().context("target_modules")?;
        serde_json::from_value(value).context("target_modules")
    }
}
