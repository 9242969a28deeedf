//! Folders that are no model, or lie about being one.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use super::super::names;
use super::*;

type Stored = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Changes the tensors of a folder's weights.
fn edit_weights(folder: &Path, edit: impl FnOnce(&mut Stored)) {
    let path = folder.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Stored = file
        .iter()
        .map(|(name, view)| {
            let stored = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), stored)
        })
        .collect();
    edit(&mut tensors);
    let views: BTreeMap<_, _> = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| {
            let view = TensorView::new(*dtype, shape.clone(), data).unwrap();
            (name.as_str(), view)
        })
        .collect();
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Changes the index of a sharded folder.
fn edit_index(folder: &Path, edit: impl FnOnce(&mut Value)) {
    let path = folder.join("model.safetensors.index.json");
    let mut index = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut index);
    fs::write(path, index.to_string()).unwrap();
}

/// The message after a change to the weights of a tied Llama model.
fn after(edit: impl FnOnce(&mut Stored)) -> String {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    edit_weights(&path, edit);
    refusal(&path)
}

#[test]
fn places_without_a_model_are_told_apart() {
    let scratch = scratch();
    let root = scratch.path();
    let touch = |name: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"x").unwrap();
        path
    };
    fs::create_dir(root.join("empty")).unwrap();
    touch("pickled/pytorch_model.bin");
    touch("pickled/config.json");
    touch("bare/model.safetensors");
    touch("several/a.gguf");
    touch("several/b.GGUF");
    for (path, want) in [
        (root.join("absent"), "No such file"),
        (root.join("empty"), "it has: nothing"),
        (root.join("pickled"), "can run code"),
        (root.join("bare"), "no config.json"),
        (
            root.join("several"),
            "several .gguf files, give the path of one: a.gguf, b.GGUF",
        ),
        (touch("model.pt"), "can run code"),
        (touch("model.safetensors"), "give the folder"),
        (touch("notes.txt"), "is not a model"),
    ] {
        let message = refusal(&path);
        assert!(message.contains(want), "{}: {message}", path.display());
    }
}

#[test]
fn a_configuration_must_be_text_of_a_sane_size() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let config = path.join("config.json");
    fs::write(&config, b"{\"a\": \"\xff\"}").unwrap();
    assert!(refusal(&path).contains("not UTF-8: invalid byte at offset 7"));
    fs::File::create(&config)
        .unwrap()
        .set_len(80 << 20)
        .unwrap();
    assert!(refusal(&path).contains("has 83886080 bytes, at most 67108864"));
    fs::write(&config, "{}").unwrap();
    let message = refusal(&path);
    assert!(
        message.contains("config.json: model_type is missing"),
        "{message}"
    );
    fs::remove_file(&config).unwrap();
    fs::create_dir(&config).unwrap();
    assert!(refusal(&path).contains("not a regular file"));
}

#[test]
fn truncated_weights_tell_expected_and_actual_bytes() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let file = path.join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for length in [
        0,
        1,
        7,
        8,
        9,
        header - 1,
        header,
        header + 1,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        fs::write(&file, &whole[..length]).unwrap();
        let message = refusal(&path);
        assert!(message.contains("truncated"), "{length}: {message}");
        assert!(
            message.contains(&format!("the file has {length}")),
            "{message}"
        );
        if length >= header {
            assert!(
                message.contains(&format!("needs {} bytes", whole.len())),
                "{message}"
            );
        }
    }
}

#[test]
fn tensors_must_be_exactly_those_of_the_configuration() {
    let q = "model.layers.0.self_attn.q_proj.weight";
    let missing = after(|tensors| {
        tensors.remove(q);
        tensors.remove(names::FINAL_NORM);
    });
    assert!(
        missing.contains("2 tensors are missing") && missing.contains(q),
        "{missing}"
    );
    let many = after(|tensors| tensors.retain(|name, _| !name.contains("layers.1")));
    assert!(
        many.contains("9 tensors are missing") && many.contains("and 4 more"),
        "{many}"
    );
    let unexpected = after(|tensors| {
        let copy = tensors[q].clone();
        tensors.insert("model.layers.9.extra.weight".into(), copy);
    });
    assert!(unexpected.contains("1 tensors are unexpected: model.layers.9.extra.weight"));
    let shape = after(|tensors| tensors.get_mut(q).unwrap().1 = vec![32, 128]);
    assert!(
        shape.contains("has shape [32, 128]") && shape.contains("[64, 64]"),
        "{shape}"
    );
    let flat = after(|tensors| tensors.get_mut(q).unwrap().1 = vec![4096]);
    assert!(flat.contains("has shape [4096]"), "{flat}");
    let wide = after(|tensors| {
        let (dtype, shape, data) = tensors.get_mut(names::FINAL_NORM).unwrap();
        *dtype = Dtype::F64;
        *shape = vec![32];
        assert_eq!(data.len(), 256);
    });
    assert!(wide.contains("dtype F64"), "{wide}");
}

#[test]
fn derived_buffers_of_old_checkpoints_are_left_aside() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let hash = open(&path).unwrap().content_hash();
    edit_weights(&path, |tensors| {
        let buffer = (Dtype::F32, vec![8], vec![0; 32]);
        tensors.insert(
            "model.layers.0.self_attn.rotary_emb.inv_freq".into(),
            buffer,
        );
    });
    assert_eq!(open(&path).unwrap().content_hash(), hash);
}

#[test]
fn a_tied_model_may_repeat_its_head_but_not_have_another() {
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let hash = open(&path).unwrap().content_hash();
    edit_weights(&path, |tensors| {
        let copy = tensors[names::EMBEDDING].clone();
        tensors.insert(names::HEAD.into(), copy);
    });
    let model = open(&path).unwrap();
    assert!(model.head.is_none());
    assert_eq!(model.content_hash(), hash);
    edit_weights(&path, |tensors| {
        tensors.get_mut(names::HEAD).unwrap().2[0] ^= 1
    });
    assert!(refusal(&path).contains("lm_head.weight differs"));
    edit_config(&path, |config| config["tie_word_embeddings"] = false.into());
    assert!(open(&path).unwrap().head.is_some());
    edit_weights(&path, |tensors| drop(tensors.remove(names::HEAD)));
    assert!(refusal(&path).contains("1 tensors are missing: lm_head.weight"));
}

#[test]
fn values_that_are_no_numbers_are_named_by_place() {
    let down = "model.layers.1.mlp.down_proj.weight";
    let set = |name: &'static str, at: usize, value: f32| {
        move |tensors: &mut Stored| {
            let data = &mut tensors.get_mut(name).unwrap().2;
            data[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        }
    };
    let nan = after(set(down, 96 * 5 + 7, f32::NAN));
    assert!(
        nan.contains(&format!("{down} has the value NaN in row 5, column 7")),
        "{nan}"
    );
    let infinite = after(set(names::FINAL_NORM, 3, f32::NEG_INFINITY));
    assert!(
        infinite.contains("the value -inf in row 0, column 3"),
        "{infinite}"
    );
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    edit_weights(&path, set(down, 0, f32::INFINITY));
    assert!(refusal(&path).contains("the value inf in row 0, column 0"));
    let unchecked = OpenOptions {
        check_finite: false,
        ..options()
    };
    assert!(Model::open(&path, &unchecked).is_ok());
}

fn sharded(scratch: &TempDir) -> PathBuf {
    folder(
        scratch,
        &TinySpec {
            shards: 3,
            ..llama()
        },
    )
}

#[test]
fn all_missing_shards_are_listed_at_once() {
    let scratch = scratch();
    let path = sharded(&scratch);
    for shard in [1, 3] {
        fs::remove_file(path.join(format!("model-0000{shard}-of-00003.safetensors"))).unwrap();
    }
    let message = refusal(&path);
    assert!(message.contains("2 of 3 shards are missing"), "{message}");
    assert!(message.contains("model-00001-of-00003") && message.contains("model-00003-of-00003"));
}

#[test]
fn an_index_must_fit_its_shards() {
    let index = |edit: fn(&mut Value)| {
        let scratch = scratch();
        let path = sharded(&scratch);
        edit_index(&path, edit);
        refusal(&path)
    };
    let other = index(|index| {
        index["weight_map"][names::EMBEDDING] = "model-00002-of-00003.safetensors".into();
    });
    assert!(
        other.contains("is in model-00001-of-00003.safetensors but the index says"),
        "{other}"
    );
    let forgotten = index(|index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove(names::EMBEDDING);
    });
    assert!(forgotten.contains("does not mention it"), "{forgotten}");
    let promised = index(|index| {
        index["weight_map"]["more.weight"] = "model-00002-of-00003.safetensors".into();
    });
    assert!(
        promised.contains("1 tensors are not in the shard"),
        "{promised}"
    );
    let total = index(|index| index["metadata"] = json!({"total_size": 7}));
    assert!(total.contains("total_size is 7 bytes"), "{total}");
    let trick = index(|index| {
        index["weight_map"][names::EMBEDDING] = "../../secret.safetensors".into();
    });
    assert!(
        trick.contains("shard name \"../../secret.safetensors\" is refused"),
        "{trick}"
    );
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let scratch = scratch();
    let path = sharded(&scratch);
    let first = path.join("model-00001-of-00003.safetensors");
    fs::copy(first, path.join("model-00002-of-00003.safetensors")).unwrap();
    assert!(refusal(&path).contains("but the index says"));
}

#[cfg(unix)]
#[test]
fn links_stay_in_the_folder_or_in_the_blobs_of_the_hub_cache() {
    use std::os::unix::fs::symlink;
    let scratch = scratch();
    let path = folder(&scratch, &llama());
    let hash = open(&path).unwrap().content_hash();
    let weights = path.join("model.safetensors");
    let outside = scratch.path().join("outside.safetensors");
    fs::rename(&weights, &outside).unwrap();
    symlink(&outside, &weights).unwrap();
    assert!(refusal(&path).contains("outside the model's folder"));
    // Within the folder a link is harmless.
    fs::rename(&outside, path.join("real.bin")).unwrap();
    fs::remove_file(&weights).unwrap();
    symlink("real.bin", &weights).unwrap();
    assert_eq!(open(&path).unwrap().content_hash(), hash);
    // The layout of the hub's cache.
    let cache = scratch.path().join("models--org--name");
    let snapshot = cache.join("snapshots/rev");
    fs::create_dir_all(snapshot.parent().unwrap()).unwrap();
    fs::create_dir(cache.join("blobs")).unwrap();
    fs::rename(&path, &snapshot).unwrap();
    fs::rename(snapshot.join("real.bin"), cache.join("blobs/abc")).unwrap();
    fs::remove_file(snapshot.join("model.safetensors")).unwrap();
    symlink("../../blobs/abc", snapshot.join("model.safetensors")).unwrap();
    assert_eq!(open(&snapshot).unwrap().content_hash(), hash);
    // A dangling link is an absent file.
    fs::remove_file(cache.join("blobs/abc")).unwrap();
    assert!(refusal(&snapshot).contains("model.safetensors: No such file"));
}
