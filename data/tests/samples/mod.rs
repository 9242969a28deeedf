//! What both suites of samples use: options that refuse little, a check whose counts must add up, a good record.

use data::dataset::{Dataset, Options};
use data::template::Template;
use data::tokenizer::{Special, Tokenizer};
use shared::job::Overlong;

/// A good record.
pub(crate) const CHAT: &str =
    r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}"#;

/// Options that refuse little.
pub(crate) fn options() -> Options {
    Options {
        max_length: None,
        context: 512,
        vocabulary: None,
        overlong: Overlong::Drop,
        train_on_inputs: false,
        max_dropped: 1.0,
        special: Special::Plain,
        max_line_bytes: 100_000,
    }
}

/// Reads the bytes; the counts must add up.
pub(crate) fn check(bytes: impl AsRef<[u8]>, options: &Options) -> Dataset {
    let tokenizer = Tokenizer::bytes();
    let template = Template::choose(None, &tokenizer, None).unwrap();
    let dataset = Dataset::check(bytes.as_ref(), "x", options, &tokenizer, &template).unwrap();
    assert!(dataset.report.adds_up(), "{:?}", dataset.report);
    dataset
}
