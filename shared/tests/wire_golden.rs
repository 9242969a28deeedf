//! The bytes of every message, kept in a file: a change of the wire must be meant.
//!
//! After a change that is: raise the version in `wire/version.rs` if a release spoke the old one, then
//! `SPOTMUX_GOLDEN=write cargo test -p shared --test wire_golden`, and read the difference.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "wire_golden/samples.rs"]
mod samples;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use shared::ids::PlanEpoch;
use shared::wire::chunk::{ChunkDtype, ChunkHead, ChunkKind, checksum};
use shared::wire::codec::{HEAD, Limits, Message, frame, message};
use shared::wire::notice::Notice;
use shared::wire::opening::Opening;
use shared::wire::order::Ordered;
use shared::wire::request::{Reply, Request};

fn lines<M: Message + std::fmt::Debug + PartialEq>(text: &mut String, of: &[M]) {
    let limits = Limits::default();
    for sample in of {
        let bytes = frame(sample, &limits).unwrap();
        assert_eq!(&message::<M>(&bytes[HEAD..], &limits).unwrap(), sample);
        let debug = format!("{sample:?}");
        let name: String = debug.chars().take(60).collect();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{} {name}\n  {hex}", M::KIND).unwrap();
    }
}

/// Which variants an enum has, the decoder itself says; `tag` is where the variant's number stands.
fn all_variants<M: Message + std::fmt::Debug>(of: &[M], tag: usize) {
    let limits = Limits::default();
    let seen: BTreeSet<u8> = of
        .iter()
        .map(|sample| frame(sample, &limits).unwrap()[HEAD + tag])
        .collect();
    let mut none = vec![0; tag];
    none.push(250);
    let error = message::<M>(&none, &limits).unwrap_err().to_string();
    // "invalid value: integer `250`, expected variant index 0 <= i < 19"
    let digits = error
        .rsplit(|c: char| !c.is_ascii_digit())
        .find(|word| !word.is_empty());
    let count: usize = digits.unwrap_or_else(|| panic!("{error}")).parse().unwrap();
    assert_ne!(count, 250, "{error}");
    assert_eq!(
        seen.len(),
        count,
        "{}: a variant has no sample ({error})",
        M::KIND
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that a person tells to write its file"
)]
fn the_bytes_of_every_message_are_those_of_the_file() {
    let mut text = String::new();
    let openings: Vec<Opening> = samples::openings();
    let requests: Vec<Request> = samples::requests();
    let replies: Vec<Reply> = samples::replies();
    let orders: Vec<Ordered> = samples::orders();
    let notices: Vec<Notice> = samples::notices();
    all_variants(&openings, 0);
    all_variants(&requests, 0);
    all_variants(&replies, 0);
    // The term goes first: one byte when it is small.
    all_variants(&orders, 1);
    all_variants(&notices, 0);
    lines(&mut text, &openings);
    lines(&mut text, &requests);
    lines(&mut text, &replies);
    lines(&mut text, &orders);
    lines(&mut text, &notices);
    let head = ChunkHead {
        epoch: PlanEpoch(3),
        micro_batch: 0x0102_0304_0506_0708,
        kind: ChunkKind::Backward,
        dtype: ChunkDtype::Bf16,
        rows: 2,
        width: 3,
        checksum: checksum(b"abcdefghijkl"),
    };
    let hex: String = head
        .encode()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    writeln!(text, "chunk head\n  {hex}").unwrap();

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/wire-1.txt");
    if std::env::var("SPOTMUX_GOLDEN").is_ok_and(|word| word == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    for (ours, theirs) in text.lines().zip(kept.lines()) {
        assert_eq!(ours, theirs, "the wire changed; see the head of this test");
    }
    assert_eq!(
        text.lines().count(),
        kept.lines().count(),
        "messages came or went"
    );
}
