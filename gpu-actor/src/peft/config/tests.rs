//! Configurations as the library writes them, and what is refused in others.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn a_bottleneck_without_residual_or_bias_is_refused() {
    let text = r#"{"peft_type": "BOTTLENECK", "placement": "parallel", "bottleneck_size": 4, "non_linearity": "relu", "residual": true, "bias": true}"#;
    assert!(read(text).is_ok());
    for key in ["residual", "bias"] {
        let (set, unset) = (format!("{key:?}: true"), format!("{key:?}: false"));
        let refused = read(&text.replace(&set, &unset)).unwrap_err().to_string();
        assert!(
            refused.contains(key) && refused.contains("false"),
            "{refused}"
        );
    }
}

/// As version 0.21.2 of the library writes it, every key at its default.
const LORA: &str = r#"{"task_type": "CAUSAL_LM", "peft_type": "LORA", "auto_mapping": null,
    "peft_version": "0.21.2", "base_model_name_or_path": "some/model", "revision": null, "inference_mode": true,
    "r": 8, "target_modules": ["q_proj"], "exclude_modules": null, "lora_alpha": 16, "lora_dropout": 0.0,
    "fan_in_fan_out": false, "bias": "none", "use_rslora": false, "modules_to_save": null,
    "init_lora_weights": true, "layers_to_transform": null, "layers_pattern": null, "rank_pattern": {},
    "alpha_pattern": {}, "megatron_config": null, "megatron_core": "megatron.core",
    "trainable_token_indices": null, "loftq_config": {}, "eva_config": null, "corda_config": null,
    "lora_ga_config": null, "use_dora": false, "velora_config": null, "alora_invocation_tokens": null,
    "use_qalora": false, "qalora_group_size": 16, "monteclora_config": null, "layer_replication": null,
    "lora_bias": false, "target_parameters": null, "use_bdlora": null, "arrow_config": null,
    "kasa_config": null, "ensure_weight_tying": false}"#;
const IA3: &str = r#"{"task_type": "CAUSAL_LM", "peft_type": "IA3", "auto_mapping": null,
    "peft_version": "0.21.2", "base_model_name_or_path": null, "revision": null, "inference_mode": true,
    "target_modules": ["down_proj", "v_proj"], "exclude_modules": null, "feedforward_modules": ["down_proj"],
    "fan_in_fan_out": false, "modules_to_save": null, "init_ia3_weights": true}"#;
const PREFIX: &str = r#"{"task_type": "CAUSAL_LM", "peft_type": "PREFIX_TUNING", "auto_mapping": null,
    "peft_version": "0.21.2", "base_model_name_or_path": null, "revision": null, "inference_mode": true,
    "num_virtual_tokens": 4, "token_dim": 64, "num_transformer_submodules": 1, "num_attention_heads": 4,
    "num_layers": 2, "modules_to_save": null, "init_weights": null, "encoder_hidden_size": 64,
    "prefix_projection": false}"#;
const PROMPT: &str = r#"{"task_type": "CAUSAL_LM", "peft_type": "PROMPT_TUNING", "auto_mapping": null,
    "peft_version": "0.21.2", "base_model_name_or_path": null, "revision": null, "inference_mode": true,
    "num_virtual_tokens": 4, "token_dim": 64, "num_transformer_submodules": 1, "num_attention_heads": 4,
    "num_layers": 2, "modules_to_save": null, "prompt_tuning_init": "TEXT", "prompt_tuning_init_text": "hello",
    "tokenizer_name_or_path": "some/model", "tokenizer_kwargs": null}"#;

#[test]
fn what_the_library_writes_is_read() {
    for text in [LORA, IA3, PREFIX, PROMPT] {
        assert!(read(text).is_ok(), "{:?}", read(text));
    }
}

#[test]
fn what_changes_the_numbers_is_refused_by_name() {
    let cases = [
        ("init_lora_weights", "\"pissa\""),
        ("init_lora_weights", "\"pissa_niter_4\""),
        ("init_lora_weights", "\"olora\""),
        ("init_lora_weights", "\"corda\""),
        ("init_lora_weights", "\"loftq\""),
        ("task_type", "\"SEQ_CLS\""),
        ("bias", "\"all\""),
        ("fan_in_fan_out", "true"),
        ("modules_to_save", "[\"lm_head\"]"),
        ("rank_pattern", "{\"q_proj\": 4}"),
        ("lora_bias", "true"),
        ("use_rslora", "\"yes\""),
        ("lora_dropout", "\"0.1\""),
        ("a_key_of_tomorrow", "0.5"),
        ("peft_type", "\"VERA\""),
    ];
    for (key, value) in cases {
        let mut file: Value = serde_json::from_str(LORA).unwrap();
        file[key] = serde_json::from_str(value).unwrap();
        let message = read(&file.to_string()).unwrap_err().to_string();
        assert!(message.contains(key), "{message}");
    }
    let twice = LORA.replace("\"r\": 8", "\"r\": 8, \"r\": 4");
    let message = read(&twice).unwrap_err().to_string();
    assert!(message.contains("`r` is there twice"), "{message}");
}
