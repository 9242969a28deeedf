//! What works: requests, streams, bodies, a drain.

use std::fs;

use super::*;
use crate::ids::{EventNumber, PlanEpoch};
use crate::net::backoff::Backoff;
use crate::net::client::ClientError;
use crate::wire::request::{JobRef, RefusalCode};

#[tokio::test]
async fn a_client_is_answered_by_name_and_a_failing_request_spares_the_others() {
    let cluster = Cluster::start("c");
    let client = cluster.client().await;
    let reply = client.request(&Request::Status).await.unwrap();
    assert_eq!(reply, Reply::Piece("spotmux://c/client/me".into()));
    assert_eq!(client.peer().identity, who("c", Role::Coordinator, "main"));
    // Many at once on one connection.
    let many = futures_util::future::join_all((0..200).map(|_| client.request(&Request::Status)));
    assert!(many.await.into_iter().all(|reply| reply.is_ok()));
    // One whose service panics loses its connection.
    let other = cluster.client().await;
    let failed = other.request(&Request::Jobs).await.unwrap_err();
    let internal = matches!(
        failed,
        ClientError::Net(
            NetError::Closed {
                code: CloseCode::Internal,
                ..
            } | NetError::GivenUp {
                code: CloseCode::Internal
            }
        )
    );
    assert!(internal, "{failed}");
    assert!(client.request(&Request::Status).await.is_ok());
}

#[tokio::test]
async fn files_go_up_and_come_down_whole() {
    let cluster = Cluster::start("c");
    let client = cluster.client().await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let path = cluster.path().join("up.bin");
    fs::write(&path, &body).unwrap();
    let reference = file_of("up.bin", &body);
    client.upload(&reference, &path).await.unwrap();
    assert_eq!(*cluster.host.uploaded.lock().unwrap(), body);
    let down = cluster.path().join("down");
    fs::create_dir(&down).unwrap();
    let fetch = Request::Fetch(JobRef::Id(crate::ids::JobId(1)));
    let files = client.download(&fetch, &down).await.unwrap();
    assert_eq!(files, [file_of("adapter.bin", &body)]);
    assert_eq!(fs::read(down.join("adapter.bin")).unwrap(), body);
    assert_eq!(fs::read_dir(&down).unwrap().count(), 1);
    // A file that is not what was said of it.
    let lie = FileRef {
        sha256: "0".repeat(64),
        ..reference.clone()
    };
    let refused = client.upload(&lie, &path).await.unwrap_err();
    assert!(matches!(refused, ClientError::File { .. }), "{refused}");
    let short = FileRef {
        bytes: Bytes(4_000_000),
        ..reference
    };
    let refused = client.upload(&short, &path).await.unwrap_err();
    assert!(matches!(refused, ClientError::File { .. }), "{refused}");
    // The connection outlives uploads that were given up.
    assert!(client.request(&Request::Status).await.is_ok());
}

#[tokio::test]
async fn a_node_talks_both_ways_on_one_stream() {
    let cluster = Cluster::start("c");
    let node = cluster.member(Role::GpuActor, "n1");
    let peer = node
        .connect(cluster.address, Role::Coordinator)
        .await
        .unwrap();
    let mut stream = peer.open(Opening::Node).await.unwrap();
    for epoch in 0..50 {
        let epoch = PlanEpoch(epoch);
        stream
            .sender
            .send(&Notice::Drained {
                epoch,
                toward: epoch,
                outcome: Ok(()),
            })
            .await
            .unwrap();
    }
    for epoch in 0..50 {
        let order: Ordered = stream.receiver.expect().await.unwrap();
        assert_eq!(
            order.order,
            Order::Release {
                epoch: PlanEpoch(epoch)
            }
        );
    }
    stream.sender.finish();
    assert!(
        stream
            .receiver
            .receive::<Ordered>()
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_dropped_send_or_receive_loses_nothing() {
    let cluster = Cluster::start("c");
    let node = cluster.member(Role::GpuActor, "n1");
    let peer = node
        .connect(cluster.address, Role::Coordinator)
        .await
        .unwrap();
    let mut stream = peer.open(Opening::Node).await.unwrap();
    let mut heard = Vec::new();
    for epoch in 0..200 {
        let epoch = PlanEpoch(epoch);
        let notice = Notice::Drained {
            epoch,
            toward: epoch,
            outcome: Ok(()),
        };
        // Polled once and dropped, as when another branch of a select wins.
        let _ = futures_util::FutureExt::now_or_never(stream.sender.send(&notice));
        let order = futures_util::FutureExt::now_or_never(stream.receiver.receive::<Ordered>());
        heard.extend(order.map(|order| order.unwrap().unwrap()));
        tokio::task::yield_now().await;
    }
    stream.sender.flush().await.unwrap();
    while heard.len() < 200 {
        heard.push(stream.receiver.expect::<Ordered>().await.unwrap());
    }
    let epochs = heard.into_iter().map(|order| match order.order {
        Order::Release { epoch } => epoch.0,
        other => panic!("{other:?}"),
    });
    assert!(epochs.eq(0..200));
}

#[tokio::test]
async fn a_drain_lets_what_runs_end_and_takes_nothing_new() {
    let cluster = Cluster::start("c");
    let client = cluster.client().await;
    let follow = Request::Events {
        job: None,
        after: EventNumber(0),
        follow: true,
    };
    let mut replies = client.ask(&follow).await.unwrap();
    assert_eq!(replies.one().await.unwrap(), Reply::Events(Vec::new()));
    let address = cluster.address;
    let late = cluster.member(Role::Client, "late");
    let drained = tokio::spawn(cluster.router.drain(PATIENCE));
    assert_eq!(replies.one().await.unwrap(), Reply::Done);
    assert!(replies.next().await.unwrap().is_none());
    assert!(drained.await.unwrap(), "what ran did not end by itself");
    let refused = client.request(&Request::Status).await.unwrap_err();
    let shutdown = matches!(
        refused,
        ClientError::Net(NetError::Closed {
            code: CloseCode::Shutdown,
            ..
        })
    );
    assert!(shutdown, "{refused}");
    // Nobody is there any more: tried again until patience ends.
    let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50), 1);
    let gone = Client::connect_within(&late, address, Duration::from_millis(300), backoff).await;
    assert!(gone.unwrap_err().may_pass());
}

#[tokio::test]
async fn a_client_waits_for_a_coordinator_that_starts_later() {
    let first = Cluster::start("c");
    let endpoint = first.member(Role::Client, "me");
    let address = first.address;
    assert!(first.router.drain(PATIENCE).await);
    // The same authority opens the same port again a little later.
    let authority = first.host.enroller.authority();
    let credential = authority
        .issue(&who("c", Role::Coordinator, "main"), MEMBER_LIFE, now())
        .unwrap();
    let host = Arc::clone(&first.host);
    let restart = async move {
        tokio::task::yield_now().await;
        let again = EndpointSettings::at(address);
        let opened = Arc::new(Endpoint::open(&again, &credential, true).unwrap());
        Router::start(opened, host, RouterLimits::default())
    };
    let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200), 1);
    let (client, _router) = tokio::join!(
        Client::connect_within(&endpoint, address, PATIENCE, backoff),
        restart
    );
    assert!(client.unwrap().request(&Request::Status).await.is_ok());
}

#[tokio::test]
async fn a_role_is_refused_what_is_not_its_own() {
    let cluster = Cluster::start("c");
    let node = cluster.member(Role::GpuActor, "n1");
    let client = Client::connect(&node, cluster.address).await.unwrap();
    let refused = client.request(&Request::Shutdown).await.unwrap_err();
    let ClientError::Refused(refusal) = refused else {
        panic!("{refused}")
    };
    assert_eq!(refusal.code, RefusalCode::Forbidden);
    // The connection stands.
    assert!(client.request(&Request::Status).await.is_ok());
    // A client that opens the stream of a node loses its connection.
    let asked = cluster.client().await;
    let mut stream = asked.peer().open(Opening::Node).await.unwrap();
    let closed = stream.receiver.receive::<Ordered>().await.unwrap_err();
    let forbidden = matches!(
        closed,
        NetError::Closed {
            code: CloseCode::Forbidden,
            ..
        }
    );
    assert!(forbidden, "{closed}");
}
