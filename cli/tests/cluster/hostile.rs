//! Who says what is not so: a node under another's name, files that are not what they are said to be.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use shared::config::places;
use shared::ids::{NodeName, Term};
use shared::net::credential::Credential;
use shared::net::endpoint::{Endpoint, EndpointSettings, Peer};
use shared::net::identity::Role;
use shared::units::{Bytes, Micros};
use shared::wire::notice::{Hello, Notice};
use shared::wire::opening::Opening;
use shared::wire::order::Ordered;
use shared::wire::request::{FileRef, RefusalCode, Reply, Request};

use super::run::{Cluster, Sandbox};

/// Connects to the coordinator with one of the cluster's certificates; the endpoint must stay.
async fn connect(sandbox: &Sandbox, certificate: &str) -> (Endpoint, Peer) {
    let path = sandbox.path().join(".spotmux/security").join(certificate);
    let credential = Credential::load(&path).unwrap();
    let settings = EndpointSettings::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    let endpoint = Endpoint::open(&settings, &credential, false).unwrap();
    let text = fs::read_to_string(sandbox.path().join("cluster.toml")).unwrap();
    let listen = text
        .lines()
        .find_map(|line| line.strip_prefix("listen = "))
        .unwrap();
    let address: SocketAddr = listen.trim_matches('"').parse().unwrap();
    let peer = endpoint.connect(address, Role::Coordinator).await.unwrap();
    (endpoint, peer)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn hello(name: &str) -> Hello {
    Hello {
        node: NodeName::new(name).unwrap(),
        incarnation: 1,
        address: "127.0.0.1:1".into(),
        backbone: String::new(),
        products: shared::job::Products::F32,
        layers: 4,
        memory: Bytes(1 << 30),
        threads: 1,
        device: "none".into(),
        term: Term(0),
        held: None,
        unheard: 1,
        clock: Micros(0),
    }
}

#[test]
fn an_impostor_and_files_that_are_not_what_they_seem_are_sent_away() {
    let sandbox = Sandbox::new(1);
    let cluster = Cluster::start_with(&sandbox, 1, 2, "[limits]\nupload_mib = 1\n");
    runtime().block_on(async {
        let n1 = places::node(&NodeName::new("n1").unwrap());
        let (_endpoint, peer) = connect(&sandbox, &n1).await;
        let mut stream = peer.open(Opening::Node).await.unwrap();
        let notice = Notice::Hello(hello("n2"));
        stream.sender.send(&notice).await.unwrap();
        let ended = tokio::time::timeout(
            Duration::from_secs(20),
            stream.receiver.receive::<Ordered>(),
        );
        let ended = ended.await.expect("it is answered");
        let told = ended.expect_err("the connection is closed").to_string();
        assert!(told.contains("node n2 says hello"), "{told}");

        let (_endpoint, peer) = connect(&sandbox, places::OPERATOR).await;
        let right = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let wrong = right.replace('2', "3");
        for (sha256, bytes, body, word) in [
            (right, 5, "hello", None),
            (wrong.as_str(), 5, "hello", Some("its sha256 is")),
            (right, 6, "hello", Some("1 bytes early")),
            (right, (1 << 20) + 1, "", Some("limits.upload_mib")),
            ("../../journal", 5, "hello", Some("no sha256")),
        ] {
            let file = FileRef {
                path: "f".into(),
                sha256: sha256.into(),
                bytes: Bytes(bytes),
            };
            let mut stream = peer.open(Opening::Request).await.unwrap();
            stream
                .sender
                .send(&Request::PutFile(file.clone()))
                .await
                .unwrap();
            // One that was refused already takes no more.
            let _ = stream
                .sender
                .send_raw(body.as_bytes().to_vec().into())
                .await;
            stream.sender.finish();
            let reply = stream.receiver.receive::<Reply>().await.unwrap().unwrap();
            match (word, reply) {
                (None, Reply::Done) => {}
                (Some(word), Reply::Refused(refusal)) => {
                    assert_eq!(refusal.code, RefusalCode::Invalid);
                    assert!(refusal.message.contains(word), "{}", refusal.message);
                }
                (word, other) => panic!("{word:?}: {other:?}"),
            }
        }
    });
    // n2 is still who it was.
    let nodes = cluster.json(&["nodes"]).unwrap().to_string();
    assert!(
        nodes.contains("n2") && !nodes.contains("\"device\":\"none\""),
        "{nodes}"
    );
}
