//! What the library wrote is written again with the same names, shapes, bits and settings.
//!
//! Public bugs: huggingface/peft #2772 and #2699, hiyouga/LlamaFactory #10294 (keys renamed or missing).

use std::fs;
use std::path::Path;

use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::files::{self, Export};
use kernels::cpu::Cpu;
use serde_json::Value;
use shared::job::AdapterSpec;
use system_tests::reference::case::Case;
use system_tests::reference::set::ReferenceSet;

use crate::root;

/// Settings of a file that decide what it computes; a list that has no order is sorted.
fn settings(folder: &Path) -> Vec<(&'static str, Value)> {
    const KEYS: [&str; 16] = [
        "peft_type",
        "r",
        "lora_alpha",
        "lora_dropout",
        "use_rslora",
        "use_dora",
        "target_modules",
        "feedforward_modules",
        "num_virtual_tokens",
        "token_dim",
        "num_layers",
        "num_attention_heads",
        "placement",
        "bottleneck_size",
        "non_linearity",
        "task_type",
    ];
    let text = fs::read_to_string(folder.join(files::CONFIG)).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let one = |key: &'static str| {
        let mut value = config[key].clone();
        if let Some(list) = value.as_array_mut() {
            list.sort_by_key(Value::to_string);
        }
        if let Some(number) = value.as_f64() {
            value = number.into();
        }
        (key, value)
    };
    KEYS.map(one).into()
}

fn rewritten(case: &Case, model: &Model) {
    let read = files::read(&case.init_folder, &model.shape).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("adapter");
    let (spec, layout, values) = (&read.spec, &read.layout, &read.values);
    let export = Export {
        name: "rewritten",
        spec,
        layout,
        values,
        shape: &model.shape,
        base: "base",
    };
    files::write(&folder, &export, &[]).unwrap();
    if let AdapterSpec::Bottleneck(_) = spec {
        // Bottlenecks are not the PEFT library's; they are written as the adapters library has them.
        let again = files::read(&folder, &model.shape).unwrap();
        assert_eq!(&again.spec, spec, "{}", case.name);
        assert!(&again.values == values, "{}: values", case.name);
        return;
    }
    let tensors = |folder: &Path| files::read_tensors(&folder.join(files::WEIGHTS)).unwrap();
    let (theirs, ours) = (tensors(&case.init_folder), tensors(&folder));
    let names = |tensors: &gpu_actor::peft::tensors::Tensors| -> Vec<(String, Vec<usize>)> {
        let named = tensors.iter();
        named
            .map(|(key, tensor)| (key.clone(), tensor.shape.clone()))
            .collect()
    };
    assert_eq!(names(&theirs), names(&ours), "{}", case.name);
    assert!(theirs == ours, "{}: values", case.name);
    assert_eq!(
        settings(&case.init_folder),
        settings(&folder),
        "{}",
        case.name
    );
}

#[test]
fn what_the_library_wrote_is_written_again_as_it_was() {
    let Some(root) = root() else { return };
    let set = ReferenceSet::open(&root).unwrap();
    for (name, reference) in &set.models {
        let options = OpenOptions::new(Cpu::new(1).unwrap());
        let model = Model::open(&reference.folder, &options).unwrap();
        for case in set.cases_of(name, &mut Vec::new()) {
            rewritten(&case, &model);
        }
    }
}
