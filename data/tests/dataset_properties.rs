//! Properties of any file of samples: nothing panics, counts add up, line ends and marks mean nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

mod samples;

use data::dataset::Options;
use data::rows::TokenRow;
use proptest::prelude::*;
use samples::{CHAT, check, options};
use shared::job::Overlong;

/// Lines that may be good, bad or blank.
fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => ("\\PC{0,12}", "\\PC{0,12}").prop_map(|(q, a)| {
            serde_json::json!({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}).to_string()
        }),
        1 => "\\PC{0,12}".prop_map(|text| serde_json::json!({"text": text}).to_string()),
        1 => "[{}\\[\\]\":a0,]{0,12}",
        1 => Just(CHAT.replace("\"a\"", "null")),
        1 => Just(String::new()),
    ]
}

proptest! {
    /// Public bugs: huggingface/datasets #8241 and pydantic/pydantic-ai #8316.
    #[test]
    fn marks_and_line_ends_change_nothing(lines in proptest::collection::vec(any_line(), 1..8)) {
        let plain = check(lines.join("\n"), &options());
        for (start, end) in [("\u{feff}", "\n"), ("", "\r\n"), ("\u{feff}", "\r\n")] {
            let other = check(format!("{start}{}", lines.join(end)), &options());
            prop_assert_eq!(&plain.rows, &other.rows);
            prop_assert_eq!(plain.report.rows_in, other.report.rows_in);
            prop_assert_eq!(&plain.report.errors.totals, &other.report.errors.totals);
            prop_assert_eq!(plain.report.tokens, other.report.tokens);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_add_up(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(bytes, &options());
    }

    #[test]
    fn damaged_records_never_panic_and_add_up(at in 0usize..90, byte: u8, cut in 0usize..90) {
        let mut bytes = CHAT.as_bytes().to_vec();
        bytes[at.min(CHAT.len() - 1)] = byte;
        bytes.extend(&CHAT.as_bytes()[cut.min(CHAT.len())..]);
        check(bytes, &options());
    }

    /// Public bug: hiyouga/LlamaFactory #3800 (a third of the rows dropped in silence).
    #[test]
    fn counts_add_up_under_any_policy(
        lines in proptest::collection::vec(any_line(), 0..12),
        max_length in 1usize..90,
        policy in 0usize..3,
    ) {
        let overlong = [Overlong::Drop, Overlong::Truncate, Overlong::Error][policy];
        let options = Options { max_length: Some(max_length), overlong, ..options() };
        let dataset = check(lines.join("\n"), &options);
        prop_assert!(dataset.rows.iter().all(|row| row.ids.len() <= max_length && row.trained() > 0));
        prop_assert_eq!(dataset.rows.len() as u64, dataset.report.rows_used);
        let trained: usize = dataset.rows.iter().map(TokenRow::trained).sum();
        prop_assert_eq!(trained as u64, dataset.report.tokens.trained);
    }
}
