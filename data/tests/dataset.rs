//! Files of samples: the forms, everything that can be wrong, and counts that add up.
#![allow(clippy::unwrap_used, reason = "tests")]

mod samples;

use data::check::{Code, MAX_PROBLEMS, Problem};
use data::dataset::{Dataset, LoadError, Options};
use data::mask::NOT_TRAINED;
use data::rows::{DropReason, TokenRow};
use data::template::Template;
use data::tokenizer::{Special, Tokenizer};
use samples::{CHAT, check, options};
use shared::job::Overlong;

fn text(ids: &[u32]) -> String {
    Tokenizer::bytes().decode(ids, false).unwrap()
}

fn trained(row: &TokenRow) -> String {
    let labels = row.labels.iter().filter(|&&label| label != NOT_TRAINED);
    let ids: Vec<u32> = labels.map(|label| label.cast_unsigned()).collect();
    text(&ids)
}

fn errors(bytes: impl AsRef<[u8]>) -> Vec<Problem> {
    check(bytes, &options()).report.errors.listed
}

/// Code, line and path of each error.
fn faults(bytes: impl AsRef<[u8]>) -> Vec<(Code, u64, String)> {
    let found = errors(bytes).into_iter();
    found
        .map(|problem| {
            (
                problem.code,
                problem.line,
                problem.json_path.unwrap_or_default(),
            )
        })
        .collect()
}

/// The only error of a record.
fn fault(record: &str) -> Code {
    let found = faults(record);
    assert_eq!(found.len(), 1, "{found:?} for {record}");
    found[0].0
}

#[test]
fn each_form_is_read() {
    let chat = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n";
    let cases = [
        (CHAT, chat, "a<|im_end|>"),
        (
            r#"{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}"#,
            chat,
            "a<|im_end|>",
        ),
        (
            r#"{"instruction": "q", "input": "", "output": "a"}"#,
            chat,
            "a<|im_end|>",
        ),
        (
            r#"{"instruction": "q", "input": "i", "output": "a"}"#,
            "<|im_start|>user\nq\n\ni<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n",
            "a<|im_end|>",
        ),
        (
            r#"{"prompt": "q: ", "completion": "a"}"#,
            "q: a<|im_end|>",
            "a<|im_end|>",
        ),
        (
            r#"{"text": "some text"}"#,
            "some text<|im_end|>",
            "some text<|im_end|>",
        ),
    ];
    for (record, whole, part) in cases {
        let dataset = check(record, &options());
        assert!(dataset.report.errors.is_empty(), "{}", dataset.report);
        assert_eq!(text(&dataset.rows[0].ids), whole);
        assert_eq!(trained(&dataset.rows[0]), part);
    }
}

#[test]
fn parts_of_text_roles_and_weights_are_honoured() {
    let record = r#"{"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "x", "weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "y", "weight": 1}]}"#;
    let dataset = check(record.replace('\n', " "), &options());
    assert!(
        text(&dataset.rows[0].ids)
            .starts_with("<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nab")
    );
    assert_eq!(trained(&dataset.rows[0]), "y<|im_end|>");
}

#[test]
fn every_fault_of_a_conversation_has_its_code() {
    let message = |fields: &str| {
        format!(r#"{{"messages": [{{{fields}}}, {{"role": "assistant", "content": "a"}}]}}"#)
    };
    let cases = [
        (
            message(r#""role": "user", "content": null"#),
            Code::NullField,
        ),
        (message(r#""role": "user", "content": 5"#), Code::WrongType),
        (
            message(r#""role": "user", "content": {"a": 1}"#),
            Code::WrongType,
        ),
        (
            message(r#""role": "user", "content": [{"type": "image_url"}]"#),
            Code::Unsupported,
        ),
        (message(r#""role": "user""#), Code::MissingField),
        (message(r#""content": "q""#), Code::MissingField),
        (
            message(r#""role": "robot", "content": "q""#),
            Code::UnknownRole,
        ),
        (
            message(r#""role": "tool", "content": "q""#),
            Code::Unsupported,
        ),
        (
            message(r#""role": "user", "content": "q", "weight": 0.5"#),
            Code::BadWeight,
        ),
        (
            message(r#""role": "user", "content": "q", "weight": true"#),
            Code::BadWeight,
        ),
        (
            message(r#""role": "assistant", "content": "q", "tool_calls": [{}]"#),
            Code::Unsupported,
        ),
        (r#"{"messages": []}"#.into(), Code::EmptyMessages),
        (r#"{"messages": null}"#.into(), Code::NullField),
        (r#"{"messages": "q"}"#.into(), Code::WrongType),
        (r#"{"messages": ["q"]}"#.into(), Code::WrongType),
        (
            r#"{"messages": [{"role": "user", "content": "q"}]}"#.into(),
            Code::NoAssistant,
        ),
        (
            r#"{"messages": [{"role": "assistant", "content": "q"}]}"#.into(),
            Code::TurnOrder,
        ),
        (
            CHAT.replace("]}", r#"], "tools": [{"a": 1}]}"#),
            Code::Unsupported,
        ),
    ];
    for (record, code) in cases {
        assert_eq!(fault(&record), code, "{}", &record[..record.len().min(200)]);
    }
}

#[test]
fn every_fault_of_other_records_and_lines_has_its_code() {
    let cases: [(String, Code); 22] = [
        (r#"{"prompt": "q"}"#.into(), Code::MissingField),
        (
            r#"{"prompt": "q", "completion": 1}"#.into(),
            Code::WrongType,
        ),
        (
            r#"{"prompt": [{"role": "user", "content": "q"}], "completion": ""}"#.into(),
            Code::Unsupported,
        ),
        (
            r#"{"instruction": "q", "output": null}"#.into(),
            Code::NullField,
        ),
        (
            r#"{"conversations": [{"from": "robot", "value": "q"}]}"#.into(),
            Code::UnknownRole,
        ),
        (
            r#"{"conversations": [{"from": "observation", "value": "q"}]}"#.into(),
            Code::Unsupported,
        ),
        (
            r#"{"chosen": "a", "rejected": "b", "prompt": "c"}"#.into(),
            Code::UnsupportedFormat,
        ),
        (r#"{"input_ids": [1]}"#.into(), Code::UnsupportedFormat),
        (
            r#"{"question": "a", "answer": "b"}"#.into(),
            Code::UnknownFormat,
        ),
        ("{}".into(), Code::UnknownFormat),
        ("[1, 2]".into(), Code::NotAnObject),
        ("5".into(), Code::NotAnObject),
        (r#"{"text": "a""#.into(), Code::InvalidJson),
        (r#"{"text": "a"}}"#.into(), Code::InvalidJson),
        (r#"{"text": "a", "text": "b"}"#.into(), Code::DuplicateKey),
        (r#"{"text": "\ud800"}"#.into(), Code::LoneSurrogate),
        (
            format!(r#"{{"text": "a", "b": {}}}"#, "[".repeat(5000)),
            Code::TooDeep,
        ),
        (
            format!(r#"{{"text": "{}"}}"#, "a".repeat(100_000)),
            Code::LineTooLong,
        ),
        (String::new(), Code::EmptyFile),
        (" \n\r\n".into(), Code::EmptyFile),
        ("\u{feff}".into(), Code::EmptyFile),
        ("\0\0\0".into(), Code::InvalidJson),
    ];
    for (record, code) in cases {
        assert_eq!(fault(&record), code, "{}", &record[..record.len().min(200)]);
    }
}

#[test]
fn foreign_files_are_named() {
    let coded = |mark: &[u8], unit: fn(u32) -> Vec<u8>| {
        let units = CHAT.chars().flat_map(|c| unit(u32::from(c)));
        mark.iter().copied().chain(units).collect::<Vec<u8>>()
    };
    let two_le = |c: u32| (c as u16).to_le_bytes().to_vec();
    let two_be = |c: u32| (c as u16).to_be_bytes().to_vec();
    let four_le = |c: u32| c.to_le_bytes().to_vec();
    let four_be = |c: u32| c.to_be_bytes().to_vec();
    for (bytes, name, remedy) in [
        (coded(b"\xFF\xFE", two_le), "UTF-16 (little", "-f UTF-16 "),
        (coded(b"\xFE\xFF", two_be), "UTF-16 (big", "-f UTF-16 "),
        (coded(b"", two_le), "UTF-16 (little", "-f UTF-16LE "),
        (coded(b"", two_be), "UTF-16 (big", "-f UTF-16BE "),
        (
            coded(b"\xFF\xFE\0\0", four_le),
            "UTF-32 (little",
            "-f UTF-32 ",
        ),
        (coded(b"\0\0\xFE\xFF", four_be), "UTF-32 (big", "-f UTF-32 "),
        (coded(b"", four_le), "UTF-32 (little", "-f UTF-32LE "),
        (coded(b"", four_be), "UTF-32 (big", "-f UTF-32BE "),
        (b"\x1F\x8B\x08".to_vec(), "gzip", "gunzip"),
        (b"\x28\xB5\x2F\xFD".to_vec(), "zstd", "zstd -d"),
        (b"PAR1".to_vec(), "Parquet", "JSONL"),
    ] {
        let found = errors(&bytes);
        let first = &found[0];
        assert_eq!((first.code, first.byte_offset), (Code::WrongEncoding, 0));
        let hint = first.hint.as_deref().unwrap_or_default();
        assert!(
            first.message.contains(name) && hint.contains(remedy),
            "{first}"
        );
    }
}

/// Wrong bytes, wrong JSON and wrong records are told by one rule: bytes of the file, from 0, with its byte-order mark.
#[test]
fn places_are_bytes_of_the_file_from_0() {
    for mark in ["", "\u{feff}"] {
        for (line, code, at) in [
            (&b"{\"text\": \"\xC3(\"}"[..], Code::InvalidUtf8, 10),
            (b"{\"text\": 1,, }", Code::InvalidJson, 11),
            (b"{\"text\": \"ab", Code::InvalidJson, 12),
            (b"{\"text\": 1}", Code::WrongType, 0),
        ] {
            let mut file = mark.as_bytes().to_vec();
            file.extend_from_slice(b"{\"text\": \"x\"}\n");
            let start = file.len() as u64;
            file.extend_from_slice(line);
            let found = errors(&file);
            assert_eq!((found[0].code, found[0].line), (code, 2), "{}", found[0]);
            assert_eq!(found[0].byte_offset, start + at, "{}", found[0]);
        }
    }
}

/// Public bugs: openai-php/client #107 and johny-b/llmcomp #59 (a bad row is found in mid-run).
#[test]
fn all_faults_come_at_once_with_their_places() {
    let bad_role = CHAT.replace("user", "usr").replace("\"a\"", "null");
    let preferred = CHAT.replacen('{', "{\"chosen\": 1, ", 1);
    let file = format!(
        "{CHAT}\n{bad_role}\n\n{{\"messages\": 1}}\n{{\"text\": \"x\"}}\n{preferred}\n{CHAT}\n"
    );
    let found = faults(&file);
    let expected = [
        (Code::UnknownRole, 2, "$.messages[0].role"),
        (Code::NullField, 2, "$.messages[1].content"),
        (Code::BlankLine, 3, ""),
        (Code::WrongType, 4, "$.messages"),
        (Code::MixedFormat, 5, "$"),
        (Code::UnsupportedFormat, 6, "$"),
    ];
    let expected: Vec<_> = expected
        .map(|(code, line, path)| (code, line, path.to_owned()))
        .into();
    assert_eq!(found, expected);
    let third = CHAT.len() + bad_role.len() + 2;
    assert_eq!(errors(&file)[2].byte_offset, third as u64);
    let report = check(&file, &options()).report;
    assert_eq!((report.rows_in, report.rows_used), (6, 2));
    assert_eq!(report.dropped[&DropReason::Invalid].lines, [2, 4, 5, 6]);
}

/// Public bug: openai/openai-cookbook PR #648.
#[test]
fn invalid_utf8_is_told_to_the_byte() {
    let mut file = format!("{CHAT}\n{{\"text\": \"ab").into_bytes();
    let at = file.len();
    file.extend(b"\xC3(\"}\n");
    let found = errors(&file);
    assert_eq!((found[0].code, found[0].line), (Code::InvalidUtf8, 2));
    assert_eq!(found[0].byte_offset, at as u64);
    assert!(found[0].message.contains("0xc3"), "{}", found[0]);
}

#[test]
fn a_blank_end_is_no_fault() {
    let dataset = check(format!("{CHAT}\r\n\r\n  \n"), &options());
    assert!(dataset.report.errors.is_empty());
    assert_eq!(dataset.report.rows_used, 1);
}

#[test]
fn the_list_of_faults_is_capped_and_the_totals_are_not() {
    let file = format!("{CHAT}\n{}", "{\"messages\": 5}\n".repeat(300));
    let report = check(file, &options()).report;
    assert_eq!(report.errors.listed.len(), MAX_PROBLEMS);
    assert_eq!(report.errors.totals[&Code::WrongType], 300);
    assert!(report.to_string().contains("and 200 more"));
}

#[test]
fn blank_lines_between_records_are_all_counted() {
    let file = format!("{CHAT}\n{}{CHAT}\n\n{CHAT}\n\n", "\n".repeat(250));
    let report = check(file, &options()).report;
    assert_eq!(report.errors.listed.len(), MAX_PROBLEMS);
    assert_eq!(report.errors.totals[&Code::BlankLine], 251);
    assert_eq!((report.rows_in, report.rows_used), (3, 3));
}

#[test]
fn unknown_columns_are_warned_of_once_each() {
    let record = CHAT
        .replace("\"role\"", "\"mood\": 1, \"role\"")
        .replace("]}", "], \"id\": 7}");
    let report = check(format!("{record}\n{record}"), &options()).report;
    assert!(report.errors.is_empty());
    assert_eq!(report.warnings.listed.len(), 2);
    assert_eq!(report.warnings.totals[&Code::UnknownColumn], 6);
}

#[test]
fn long_rows_meet_the_policy() {
    let long = CHAT.replace("\"q\"", &format!("\"{}\"", "q".repeat(40)));
    let late = CHAT.replace("\"a\"", &format!("\"{}\"", "a".repeat(40)));
    let file = [CHAT, &late, &long].join("\n");
    let with = |overlong, max_dropped| {
        let options = Options {
            max_length: Some(50),
            overlong,
            max_dropped,
            ..options()
        };
        check(&file, &options).report
    };
    let report = with(Overlong::Drop, 1.0);
    assert_eq!(
        (
            report.rows_used,
            report.dropped[&DropReason::OverLong].count
        ),
        (1, 2)
    );
    let report = with(Overlong::Truncate, 1.0);
    assert_eq!(
        (report.rows_used, report.truncated.lines.clone()),
        (2, vec![2])
    );
    assert_eq!(report.dropped[&DropReason::NothingToTrain].lines, [3]);
    assert_eq!(report.tokens.max, 50);
    let report = with(Overlong::Error, 1.0);
    assert_eq!(report.errors.totals[&Code::TooLong], 2);
    assert_eq!(report.errors.listed[0].line, 2);
    let report = with(Overlong::Drop, 0.5);
    assert_eq!(report.errors.totals[&Code::TooManyDropped], 1);
}

/// Public bugs: huggingface/trl #6668, unslothai/unsloth #2734 and #3198.
#[test]
fn a_file_that_trains_nothing_is_refused() {
    let record = CHAT.replace("\"a\"", "\"a\", \"weight\": 0");
    let report = check(format!("{record}\n{record}"), &options()).report;
    assert_eq!(report.errors.totals[&Code::NothingToTrain], 1);
    assert_eq!(report.dropped[&DropReason::NothingToTrain].count, 2);
}

#[test]
fn a_length_beyond_the_model_is_refused() {
    let options = Options {
        max_length: Some(513),
        ..options()
    };
    assert_eq!(
        check(CHAT, &options).report.errors.listed[0].code,
        Code::MaxLength
    );
}

#[test]
fn special_text_is_counted_and_escaped() {
    let record = CHAT.replace("\"q\"", "\"q<|im_end|>\"");
    let report = check(&record, &options()).report;
    assert_eq!(report.special_text.lines, [1]);
    assert_eq!(report.warnings.totals[&Code::SpecialText], 1);
    let parse = Options {
        special: Special::Parse,
        ..options()
    };
    let (plain, parsed) = (check(&record, &options()), check(&record, &parse));
    assert_eq!(plain.rows[0].ids.len(), parsed.rows[0].ids.len() + 9);
}

/// Public bugs: axolotl #2089 and trl #5988 (headers of answers are learned without a word).
#[test]
fn a_template_that_lets_headers_count_is_told_of_once() {
    const HEADED: &str =
        "{% for m in messages %}<{{ m['role'] }}>\n{{ m['content'] }}\n{% endfor %}";
    let asked = format!("{HEADED}{{% if add_generation_prompt %}}<assistant>\n{{% endif %}}");
    // No header stands before an answer here: there is nothing to ask for.
    let instruct = "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %} {{ m['content'] }}\
                    {% endif %}{% endfor %}";
    let tokenizer = Tokenizer::bytes();
    let told = |template: &str, options: &Options| {
        let template = Template::choose(Some(template), &tokenizer, None).unwrap();
        let bytes = format!("{CHAT}\n{CHAT}\n");
        let dataset =
            Dataset::check(bytes.as_bytes(), "a.jsonl", options, &tokenizer, &template).unwrap();
        let found = dataset.report.warnings.listed.into_iter();
        let found = found.filter(|problem| problem.code == Code::LearnedHeader);
        found
            .map(|problem| (problem.line, problem.message))
            .collect::<Vec<_>>()
    };
    let found = told(HEADED, &options());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, 1);
    assert!(found[0].1.contains("\"<assistant>\""), "{}", found[0].1);
    assert_eq!(told(&asked, &options()), []);
    assert_eq!(told(instruct, &options()), []);
    let inputs = Options {
        train_on_inputs: true,
        ..options()
    };
    assert_eq!(told(HEADED, &inputs), []);
}

#[test]
fn load_gives_all_problems_as_one_error() {
    let tokenizer = Tokenizer::bytes();
    let template = Template::choose(None, &tokenizer, None).unwrap();
    let bytes = b"{\"text\": 1}\n{\"text\": 2}\n".as_slice();
    let error =
        Dataset::load(bytes, "jobs/a.jsonl", &options(), &tokenizer, &template).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("jobs/a.jsonl has 2 problem(s)"),
        "{message}"
    );
    let LoadError::Rejected { report, .. } = error else {
        panic!("{error:?}");
    };
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::from_str::<data::report::Report>(&json).unwrap(),
        *report
    );
}

/// Tokens are added to a tokenizer without a row in the model's embedding: only a sample that holds one is wrong.
#[test]
fn a_token_beyond_the_model_is_named_with_its_line() {
    let of = |vocabulary| {
        let vocabulary = Some(vocabulary);
        let options = Options {
            vocabulary,
            ..options()
        };
        check(CHAT, &options).report
    };
    assert!(of(259).errors.is_empty());
    let report = of(258);
    let [problem] = report.errors.listed.as_slice() else {
        panic!("{:?}", report.errors);
    };
    assert_eq!((problem.code, problem.line), (Code::TokenBeyondModel, 1));
    for words in ["\"<|im_end|>\"", "id 258", "258 rows"] {
        assert!(problem.message.contains(words), "{problem}");
    }
}

/// Three private-use characters mark places in a conversation; a line that holds all of them leaves none.
#[test]
fn a_line_of_all_private_characters_is_an_error_of_that_line() {
    let all: String = ('\u{100000}'..='\u{10FFFD}').collect();
    let record = CHAT.replace("\"q\"", &format!("\"{all}\""));
    let options = Options {
        max_line_bytes: 1 << 20,
        ..options()
    };
    let errors = check(format!("{CHAT}\n{record}"), &options).report.errors;
    assert_eq!(errors.listed.len(), 1);
    let problem = &errors.listed[0];
    assert_eq!((problem.code, problem.line), (Code::Unsupported, 2));
    assert!(problem.message.contains("private-use"), "{problem}");
}
