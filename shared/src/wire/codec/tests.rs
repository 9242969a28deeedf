#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::ids::{EventNumber, JobId};
use crate::wire::request::{JobRef, Refusal, RefusalCode};

fn decode_all(payload: &[u8]) -> [bool; 5] {
    let limits = Limits::default();
    [
        message::<Opening>(payload, &limits).is_ok(),
        message::<Request>(payload, &limits).is_ok(),
        message::<Reply>(payload, &limits).is_ok(),
        message::<Ordered>(payload, &limits).is_ok(),
        message::<Notice>(payload, &limits).is_ok(),
    ]
}

fn events() -> Request {
    Request::Events {
        job: Some(JobRef::Id(JobId(70_000))),
        after: EventNumber(u64::MAX),
        follow: true,
    }
}

#[test]
fn a_message_comes_back_and_nothing_may_follow_or_lack() {
    let limits = Limits::default();
    let bytes = frame(&events(), &limits).unwrap();
    let head = FrameHead::decode(*bytes.first_chunk().unwrap(), &limits).unwrap();
    assert_eq!(head.kind, FrameKind::Request);
    let payload = &bytes[HEAD..];
    assert_eq!(head.bytes, payload.len());
    assert_eq!(message::<Request>(payload, &limits).unwrap(), events());
    let more = [payload, &[0]].concat();
    let trailing = message::<Request>(&more, &limits).unwrap_err();
    assert!(matches!(trailing, CodecError::Trailing { extra: 1, .. }));
    for cut in 0..payload.len() {
        let cut_off = message::<Request>(&payload[..cut], &limits).unwrap_err();
        assert!(matches!(cut_off, CodecError::Truncated { .. }), "{cut_off}");
    }
}

#[test]
fn limits_hold_both_ways_and_name_their_setting() {
    let limits = Limits {
        control_bytes: 100,
        ..Limits::default()
    };
    let long = Reply::Piece("x".repeat(100));
    let refused = frame(&long, &limits).unwrap_err();
    assert!(
        refused.to_string().contains("limits.frame_mib"),
        "{refused}"
    );
    let bytes = frame(&long, &Limits::default()).unwrap();
    let head = *bytes.first_chunk().unwrap();
    assert!(matches!(
        FrameHead::decode(head, &limits),
        Err(CodecError::TooLong { limit: 100, .. })
    ));
    assert!(message::<Reply>(&bytes[HEAD..], &limits).is_err());
    // The largest frame that may be sent may also be read, even of the smallest numbers.
    let most = Limits {
        control_bytes: 9 << 20,
        ..limits
    };
    let numbers = Notice::Piece {
        number: 1,
        tokens: vec![1; (9 << 20) - 64],
    };
    let bytes = frame(&numbers, &most).unwrap();
    assert_eq!(message::<Notice>(&bytes[HEAD..], &most).unwrap(), numbers);
}

#[test]
fn what_is_said_to_move_a_limit_is_a_setting() {
    for kind in FrameKind::ALL {
        let (_, setting) = kind.limit(&Limits::default());
        let named = setting.strip_prefix("nothing: it is fixed; lower ");
        let named = named.unwrap_or(setting);
        let known = crate::config::keys::KEYS
            .iter()
            .any(|key| key.path == named);
        assert!(known || setting == FIXED, "{kind}: {setting}");
    }
}

#[test]
fn strange_heads_are_refused() {
    let limits = Limits::default();
    let decode = |bytes: [u8; HEAD]| FrameHead::decode(bytes, &limits);
    assert!(matches!(
        decode([0, 0, 0, 0, 0, 0]),
        Err(CodecError::UnknownKind(0))
    ));
    assert!(matches!(
        decode([0, 0, 0, 0, 99, 0]),
        Err(CodecError::UnknownKind(99))
    ));
    assert!(matches!(
        decode([0, 0, 0, 0, 2, 1]),
        Err(CodecError::UnknownFlags { flags: 1, .. })
    ));
    for kind in FrameKind::ALL {
        let giant = decode([0xff, 0xff, 0xff, 0xff, kind as u8, 0]);
        assert!(matches!(giant, Err(CodecError::TooLong { .. })), "{kind}");
    }
}

#[test]
fn lengths_that_lie_allocate_nothing() {
    // `Reply::Piece` of a text, `Reply::Jobs` of a list, with a length of 2^62.
    let limits = Limits::default();
    let bytes = frame(&Reply::Piece(String::new()), &limits).unwrap();
    let piece = bytes[HEAD];
    let mut lie = vec![piece, 253];
    lie.extend((1_u64 << 62).to_le_bytes());
    let text = message::<Reply>(&lie, &limits).unwrap_err();
    assert!(matches!(text, CodecError::Claims { .. }), "{text}");
    lie[0] = frame(&Reply::Jobs(Vec::new()), &limits).unwrap()[HEAD];
    let list = message::<Reply>(&lie, &limits).unwrap_err();
    assert!(matches!(list, CodecError::Truncated { .. }), "{list}");
}

#[test]
fn a_name_that_is_none_is_refused_by_the_decoder() {
    let limits = Limits::default();
    let refusal = Reply::Refused(Refusal {
        code: RefusalCode::Busy,
        message: "later".into(),
    });
    let bytes = frame(&refusal, &limits).unwrap();
    assert_eq!(message::<Reply>(&bytes[HEAD..], &limits).unwrap(), refusal);
    // Request::Job(JobRef::Name("../x")): the grammar of names holds on the wire too.
    let name = crate::ids::JobName::new("aaaa").unwrap();
    let good = frame(&Request::Job(JobRef::Name(name)), &limits).unwrap();
    let mut bad = good[HEAD..].to_vec();
    let end = bad.len();
    bad[end - 4..].copy_from_slice(b"../x");
    let refused = message::<Request>(&bad, &limits).unwrap_err();
    assert!(matches!(refused, CodecError::Malformed { .. }), "{refused}");
    assert!(refused.to_string().contains("../x"), "{refused}");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode_all(&payload);
        if let Some(head) = payload.first_chunk() {
            let _ = FrameHead::decode(*head, &Limits::default());
        }
    }

    /// Small numbers reach deeper into the types than random bytes do.
    #[test]
    fn small_bytes_never_panic(payload in prop::collection::vec(0_u8..20, 0..400)) {
        let _ = decode_all(&payload);
    }

    #[test]
    fn flipped_bits_never_panic_and_what_is_read_is_written_the_same(
        bit in 0_usize..200, tokens in prop::collection::vec(any::<u32>(), 0..40),
    ) {
        let limits = Limits::default();
        let notice = Notice::Piece { number: 9, tokens };
        let mut payload = frame(&notice, &limits).unwrap()[HEAD..].to_vec();
        let at = (bit / 8) % payload.len();
        payload[at] ^= 1 << (bit % 8);
        if let Ok(read) = message::<Notice>(&payload, &limits) {
            let again = frame(&read, &limits).unwrap();
            prop_assert_eq!(message::<Notice>(&again[HEAD..], &limits).unwrap(), read);
        }
    }
}
