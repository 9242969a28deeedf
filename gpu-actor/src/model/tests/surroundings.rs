//! What comes with the weights: names, tokenizers, summaries, and the writing of tiny models.

use super::super::inspect::summarise;
use super::super::{TokenizerSource, names};
use super::*;

#[test]
fn names_are_portable_or_absent() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let model = open(&path).unwrap();
    assert_eq!(model.name, None);
    assert_eq!(model.identity(), format!("sha256:{}", model.content_hash()));
    edit_config(&path, |config| {
        config["_name_or_path"] = "/home/me/model".into()
    });
    assert_eq!(open(&path).unwrap().name, None);
    edit_config(&path, |config| config["_name_or_path"] = "org/model".into());
    assert_eq!(open(&path).unwrap().identity(), "org/model");
    let cached = scratch.path().join("models--some--name/snapshots/0123");
    fs::create_dir_all(cached.parent().unwrap()).unwrap();
    fs::rename(&path, &cached).unwrap();
    assert_eq!(open(&cached).unwrap().identity(), "some/name");
    let file = gguf(&scratch, &llama(), Format::F32);
    assert_eq!(open(&file).unwrap().identity(), "spotmux tiny");
}

#[test]
fn generation_settings_add_end_tokens() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    fs::write(
        path.join("generation_config.json"),
        r#"{"eos_token_id": [256, 258]}"#,
    )
    .unwrap();
    assert_eq!(open(&path).unwrap().shape.eos, [258, 256]);
}

#[test]
fn a_summary_counts_what_is_there() {
    let scratch = scratch();
    let spec = TinySpec::smallest(Family::Qwen3);
    let model = open(&folder(&scratch, &spec)).unwrap();
    let summary = summarise(&model).unwrap();
    let parameters = model.shape.parameters();
    assert_eq!(summary.parameters, parameters);
    assert_eq!(summary.tensors, names::expected(&model.shape).len());
    assert_eq!(summary.memory.as_held, 4 * parameters);
    assert_eq!(summary.memory.f32, 4 * parameters);
    assert!(summary.memory.bf16 < 21 * parameters / 10);
    assert!(summary.chat_template && summary.tokenizer == "tokenizer.json");
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["bytes_by_format"]["F32"], 4 * parameters);
    let quantised = open(&gguf(&scratch, &spec, Format::Q4_0)).unwrap();
    let summary = summarise(&quantised).unwrap();
    assert_eq!(summary.tokenizer, "gguf gpt2/smollm");
    assert!(summary.chat_template && summary.memory.as_held < parameters);
}

/// The tokenizers of both containers give one id a byte and take any text back unchanged.
#[test]
fn both_tokenizers_take_any_text_unchanged() {
    use data::tokenizer::{Special, Tokenizer};
    let scratch = scratch();
    let from_folder = match open(&folder(&scratch, &llama())).unwrap().tokenizer {
        TokenizerSource::Files {
            tokenizer, config, ..
        } => {
            let config = fs::read(config.unwrap()).unwrap();
            Tokenizer::from_json(&fs::read(tokenizer).unwrap(), Some(&config)).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let from_gguf = match open(&gguf(&scratch, &llama(), Format::F32))
        .unwrap()
        .tokenizer
    {
        TokenizerSource::Gguf { parts, .. } => Tokenizer::from_gguf(&parts).unwrap(),
        other => panic!("{other:?}"),
    };
    let text = "A 12 né 한국어 😀\t\r\n\u{0}<|im_end|>  x";
    for tokenizer in [&from_folder, &from_gguf] {
        let ids = tokenizer.encode(text, Special::Parse).unwrap();
        assert_eq!(ids.len(), text.len() - "<|im_end|>".len() + 1);
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
        assert!(tokenizer.chat_template().is_some());
        assert_eq!(tokenizer.eos(), Some(258));
    }
}

#[test]
fn tiny_models_are_written_whole_or_not_at_all() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let again = write_tiny(&path, &llama()).unwrap_err().to_string();
    assert!(again.contains("not an empty folder"), "{again}");
    let file = gguf(&scratch, &llama(), Format::F32);
    assert!(write_tiny_gguf(&file, &llama(), Format::F32).is_err());
    let fresh = scratch.path().join("fresh");
    for (spec, want) in [
        (
            TinySpec {
                kv_heads: 3,
                ..llama()
            },
            "num_key_value_heads",
        ),
        (
            TinySpec {
                head_dim: 7,
                ..llama()
            },
            "head_dim",
        ),
        (
            TinySpec {
                vocab: 258,
                ..llama()
            },
            "vocab",
        ),
        (
            TinySpec {
                shards: 0,
                ..llama()
            },
            "shards",
        ),
        (
            TinySpec {
                format: Format::Q4_0,
                ..llama()
            },
            "format",
        ),
    ] {
        let error = write_tiny(&fresh, &spec).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
        assert!(!fresh.exists());
    }
    let spec = TinySpec {
        intermediate: 90,
        ..llama()
    };
    let error = write_tiny_gguf(&fresh, &spec, Format::Q4_0).unwrap_err();
    assert!(error.to_string().contains("multiple of 32"), "{error}");
    let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "leftovers: {names:?}");
}
