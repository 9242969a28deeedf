//! Adapters that are not whole are refused by name: nothing random is ever put in the place of a missing tensor.
//!
//! Public bugs: huggingface/peft #2772 and #2699, hiyouga/LlamaFactory #10294 (keys missing or renamed at load, random
//! weights used, a warning at most).

use std::fs;
use std::path::{Path, PathBuf};

use gpu_actor::peft::files;
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use gpu_actor::peft::tensors::Tensors;
use shared::job::AdapterSpec;
use system_tests::methods;

use crate::{SEED, cpu, tiny, write};

/// A sound folder of a method.
fn sound(to: &Path, spec: &AdapterSpec) -> PathBuf {
    let model = tiny();
    let layout = Layout::new(spec, &model.shape, SEED);
    let values = init::values(&layout, &model, &cpu(), SEED, &[]);
    let folder = to.join("adapter");
    write(&folder, spec, &layout, &values, &model);
    files::read(&folder, &model.shape).unwrap();
    folder
}

/// What reading says once the tensors were changed.
fn told(spec: &AdapterSpec, change: impl FnOnce(&mut Tensors)) -> String {
    let temporary = tempfile::tempdir().unwrap();
    let folder = sound(temporary.path(), spec);
    let path = folder.join(files::WEIGHTS);
    let mut tensors = files::read_tensors(&path).unwrap();
    change(&mut tensors);
    fs::write(&path, files::serialize(&tensors)).unwrap();
    files::read(&folder, &tiny().shape).unwrap_err().to_string()
}

/// Each tensor of each method in turn.
#[test]
fn an_adapter_without_any_one_of_its_tensors_is_refused_by_its_name() {
    for spec in methods::every() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = sound(temporary.path(), &spec);
        let names = [files::WEIGHTS, files::HUB_WEIGHTS];
        let mut paths = names.iter().map(|name| folder.join(name));
        let path = paths.find(|path| path.exists()).unwrap();
        let whole = files::read_tensors(&path).unwrap();
        for key in whole.keys() {
            let mut tensors = whole.clone();
            tensors.remove(key);
            fs::write(&path, files::serialize(&tensors)).unwrap();
            let told = files::read(&folder, &tiny().shape).unwrap_err().to_string();
            assert!(
                told.contains("missing") && told.contains(key.as_str()),
                "{key}: {told}"
            );
        }
    }
}

#[test]
fn a_renamed_tensor_is_missing_under_its_name_and_none_is_left_over() {
    let lora = &methods::every()[0];
    let key = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight";
    let renamed = told(lora, |tensors| {
        let tensor = tensors.remove(key).unwrap();
        tensors.insert(key.replace(".weight", ""), tensor);
    });
    assert!(
        renamed.contains("1 tensors are missing") && renamed.contains(key),
        "{renamed}"
    );
    let extra = told(lora, |tensors| {
        let tensor = tensors[key].clone();
        tensors.insert(key.replace("layers.1", "layers.2"), tensor);
    });
    assert!(
        extra.contains("1 tensors are unexpected") && extra.contains("layers.2"),
        "{extra}"
    );
}

#[test]
fn a_wrong_shape_and_a_value_that_is_no_number_are_named() {
    let lora = &methods::every()[0];
    let key = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight";
    let shape = told(lora, |tensors| {
        tensors.get_mut(key).unwrap().shape.swap(0, 1)
    });
    assert!(shape.contains(key) && shape.contains("[3, 64]"), "{shape}");
    for value in [f32::NAN, f32::INFINITY] {
        let told = told(lora, |tensors| {
            tensors.get_mut(key).unwrap().values[5] = value
        });
        assert!(
            told.contains(key) && told.contains("not finite at flat index 5"),
            "{told}"
        );
    }
}

/// The places of a sparse delta come from the file: any that make a matrix, whatever seed drew them, and no others.
#[test]
fn sparse_places_are_those_of_the_file_and_must_make_a_matrix() {
    let diff = methods::every().pop().unwrap();
    let key = "base_model.model.model.layers.1.self_attn.k_proj.diff_columns";
    let changes: [fn(&mut Vec<f32>); 5] = [
        |places| places.swap(7, 8),
        |places| places[6] = 64.0,
        |places| places[6] = 0.5,
        |places| places[6] = f32::NAN,
        |places| places.truncate(5),
    ];
    for change in changes {
        let told = told(&diff, |tensors| {
            let tensor = tensors.get_mut(key).unwrap();
            change(&mut tensor.values);
            tensor.shape = vec![tensor.values.len()];
        });
        assert!(told.contains(key) && told.contains("below 64"), "{told}");
    }
}
