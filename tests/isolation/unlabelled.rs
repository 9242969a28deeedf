//! A row that trains nothing never reaches a step: there it would be a loss of 0, or a division by zero.
//!
//! Public bugs: huggingface/trl #6668 (loss 0.0 reported), unslothai/unsloth #2734 and #3198 (division by zero).

use data::rows::TokenRow;
use gpu_actor::peft::init;
use gpu_actor::train::session::layout_of;
use kernels::cpu::Cpu;
use system_tests::methods;

use crate::plan::plain;
use crate::run::Manner;
use crate::tiny;

/// What the session says to these rows for training and for measuring.
fn admitted(rows: Vec<TokenRow>, held_out: Vec<TokenRow>) -> Result<(), String> {
    let model = tiny::llama();
    let spec = plain("one", methods::every().remove(0)).spec;
    let layout = layout_of(&spec.adapter, &model, spec.seed);
    let values = init::values(&layout, &model, &Cpu::new(1).unwrap(), spec.seed, &[]);
    let mut session = Manner::new(1, 100).session(&model);
    session.admit(spec, layout, values, rows, held_out, None)
}

#[test]
fn rows_without_a_token_that_counts_are_refused_by_number() {
    let sound = TokenRow::new(vec![1, 2, 3], vec![-100, 2, 3]);
    let masked = TokenRow::new(vec![1, 2, 3], vec![-100; 3]);
    // The first label is predicted by nothing, so it counts for nothing.
    let single = TokenRow::new(vec![1], vec![1]);
    admitted(vec![sound.clone()], vec![sound.clone()]).unwrap();
    for bad in [masked, single] {
        let told = admitted(vec![sound.clone(), bad.clone()], Vec::new()).unwrap_err();
        assert!(told.contains("row 1 has no token"), "{told}");
        let told = admitted(vec![sound.clone()], vec![bad]).unwrap_err();
        assert!(told.contains("held-out row 0 has no token"), "{told}");
    }
    let told = admitted(Vec::new(), Vec::new()).unwrap_err();
    assert!(told.contains("no row to train on"), "{told}");
}
