//! What a broken or hostile peer does: it loses its connection, and nobody else notices.

use bytes::Bytes as Raw;

use super::*;
use crate::wire::codec::{FrameHead, FrameKind, HEAD, Limits, frame};

/// Sends these bytes on a fresh connection; how it was closed.
async fn closed_after(cluster: &Cluster, bytes: Vec<u8>, end: bool) -> (CloseCode, String) {
    let client = cluster.client().await;
    let halves = client.peer().connection.open_bi().await.unwrap();
    let mut stream = Stream::new(halves, Limits::default());
    stream.sender.send_raw(Raw::from(bytes)).await.unwrap();
    if end {
        stream.sender.finish();
    }
    let ended = tokio::time::timeout(PATIENCE, client.peer().connection.closed())
        .await
        .unwrap();
    match NetError::from(ended) {
        NetError::Closed { code, reason } => (code, reason),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn what_is_no_protocol_is_answered_with_the_reason() {
    let cluster = Cluster::start("c");
    let steady = cluster.client().await;
    let limits = Limits::default();
    let opening = frame(&Opening::Request, &limits).unwrap();
    let request = frame(&Request::Status, &limits).unwrap();

    let (code, reason) = closed_after(&cluster, b"GET / HTTP/1.1\r\n\r\n".to_vec(), false).await;
    assert_eq!(code, CloseCode::Malformed, "{reason}");

    let mut giant = vec![0xff, 0xff, 0xff, 0x7f, FrameKind::Request as u8, 0];
    giant.splice(0..0, opening.iter().copied());
    let (code, reason) = closed_after(&cluster, giant, false).await;
    assert_eq!(code, CloseCode::TooLong);
    assert!(reason.contains("limits.frame_mib"), "{reason}");

    let cut = [&opening[..], &request[..request.len() - 1]].concat();
    let (code, reason) = closed_after(&cluster, cut, true).await;
    assert_eq!(code, CloseCode::Malformed, "{reason}");

    let swapped = [&request[..], &opening[..]].concat();
    let (code, reason) = closed_after(&cluster, swapped, false).await;
    assert_eq!(code, CloseCode::Malformed);
    assert!(
        reason.contains("a opening is due") || reason.contains("opening is due"),
        "{reason}"
    );

    let head = FrameHead {
        kind: FrameKind::Request,
        bytes: 3,
    };
    let mut garbage = opening.clone();
    garbage.extend(head.encode(&limits).unwrap());
    garbage.extend([250, 1, 2]);
    let (code, reason) = closed_after(&cluster, garbage, false).await;
    assert_eq!(code, CloseCode::Malformed, "{reason}");
    assert_eq!(opening.len(), HEAD + 1);

    assert!(
        steady.request(&Request::Status).await.is_ok(),
        "another peer noticed"
    );
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_let_go() {
    let limits = RouterLimits {
        first_frame: Duration::from_secs(2),
        ..RouterLimits::default()
    };
    let cluster = Cluster::start_with("c", &settings(), limits);
    let client = cluster.client().await;
    let (mut send, _receive) = client.peer().connection.open_bi().await.unwrap();
    send.write_all(&[1]).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, client.peer().connection.closed())
        .await
        .unwrap();
    let told = NetError::from(ended).to_string();
    assert!(told.contains("in time"), "{told}");
}

#[tokio::test]
async fn connections_over_the_limit_are_refused_until_one_ends() {
    let limits = RouterLimits {
        connections: 1,
        ..RouterLimits::default()
    };
    let cluster = Cluster::start_with("c", &settings(), limits);
    let first = cluster.client().await;
    let endpoint = cluster.member(Role::Client, "second");
    let refused = Client::connect(&endpoint, cluster.address)
        .await
        .unwrap_err();
    assert!(refused.may_pass(), "{refused}");
    first.peer().close(CloseCode::Done, "all is said");
    let backoff =
        crate::net::backoff::Backoff::new(Duration::from_millis(5), Duration::from_millis(50), 7);
    let second = Client::connect_within(&endpoint, cluster.address, PATIENCE, backoff).await;
    assert!(second.unwrap().request(&Request::Status).await.is_ok());
}

#[tokio::test]
async fn another_version_is_refused_in_the_handshake() {
    let cluster = Cluster::start("c");
    let credential = cluster.credential(Role::Client, "me");
    let endpoint = Endpoint::open_speaking(&settings(), &credential, b"spotmux/2").unwrap();
    let refused = endpoint
        .connect(cluster.address, Role::Coordinator)
        .await
        .unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("version"), "{told}");
    assert!(!refused.may_pass());
    assert!(
        cluster
            .client()
            .await
            .request(&Request::Status)
            .await
            .is_ok()
    );
}
