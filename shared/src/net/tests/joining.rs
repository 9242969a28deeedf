//! Tokens, certificates, renewals.

use super::*;
use crate::ids::JobId;
use crate::net::credential::KeyRequest;
use crate::net::endpoint::connect_to_join;
use crate::net::fault::HandshakeFault;
use crate::net::renew::{Joiner, LOOK, RenewError, join, next_look, renew, show_file};
use crate::wire::request::{JobRef, RefusalCode};

fn invited(cluster: &Cluster) -> crate::net::token::Token {
    let expires = now().plus(MEMBER_LIFE);
    let identity = who("c", Role::GpuActor, "n7");
    cluster.host.enroller.invite(&identity, expires).unwrap()
}

fn n7(cluster: &str) -> Joiner {
    Joiner {
        cluster: Some(cluster.parse().unwrap()),
        role: Role::GpuActor,
        name: "n7".parse().unwrap(),
    }
}

#[tokio::test]
async fn a_token_makes_a_member_once() {
    let cluster = Cluster::start("c");
    let token = invited(&cluster);
    let joined = join(&settings(), cluster.address, &token, &n7("c"))
        .await
        .unwrap();
    let credential = joined.credential;
    assert_eq!(credential.identity, who("c", Role::GpuActor, "n7"));
    assert_eq!(joined.settings[0].0, "cluster.name");
    let endpoint = Endpoint::open(&settings(), &credential, false).unwrap();
    let peer = endpoint
        .connect(cluster.address, Role::Coordinator)
        .await
        .unwrap();
    assert!(peer.open(Opening::Node).await.is_ok());
    let again = join(&settings(), cluster.address, &token, &n7("c"))
        .await
        .unwrap_err();
    let RenewError::Refused(refusal) = again else {
        panic!("{again}")
    };
    assert_eq!(refusal.code, RefusalCode::Forbidden);
}

#[tokio::test]
async fn a_joiner_shows_its_token_to_nobody_but_its_cluster() {
    let (cluster, other) = (Cluster::start("c"), Cluster::start("c"));
    let token = invited(&cluster);
    let refused = join(&settings(), other.address, &token, &n7("c"))
        .await
        .unwrap_err();
    let other_authority = matches!(
        refused,
        RenewError::Net(NetError::Handshake(HandshakeFault::OtherAuthority))
    );
    assert!(other_authority, "{refused}");
    // The token was not used up.
    let joined = join(&settings(), cluster.address, &token, &n7("c")).await;
    assert!(joined.is_ok());
}

#[tokio::test]
async fn a_token_lets_nobody_in_but_whom_it_was_made_for() {
    let cluster = Cluster::start("c");
    let token = invited(&cluster);
    let n8 = Joiner {
        name: "n8".parse().unwrap(),
        ..n7("c")
    };
    let operator = Joiner {
        role: Role::Client,
        ..n7("c")
    };
    for (other, word) in [
        (n8, "gpu-actor/n8"),
        (operator, "client/n7"),
        (n7("d"), "spotmux://d/"),
    ] {
        let refused = join(&settings(), cluster.address, &token, &other)
            .await
            .unwrap_err();
        let RenewError::Refused(refusal) = refused else {
            panic!("{refused}")
        };
        assert_eq!(refusal.code, RefusalCode::Invalid);
        assert!(refusal.message.contains(word), "{}", refusal.message);
    }
    let anywhere = Joiner {
        cluster: None,
        ..n7("c")
    };
    let joined = join(&settings(), cluster.address, &token, &anywhere).await;
    assert!(joined.is_ok());
}

#[tokio::test]
async fn without_a_certificate_one_may_only_join() {
    let cluster = Cluster::start("c");
    let fingerprint = cluster.host.enroller.authority().fingerprint();
    let (_endpoint, connection) = connect_to_join(&settings(), cluster.address, fingerprint)
        .await
        .unwrap();
    let limits = settings().limits;
    let mut stream = Stream::new(connection.open_bi().await.unwrap(), limits);
    stream
        .sender
        .send(&Request::Cancel(JobRef::Id(JobId(1))))
        .await
        .unwrap();
    let reply: Reply = stream.receiver.expect().await.unwrap();
    assert!(matches!(reply, Reply::Refused(_)), "{reply:?}");
    // Nor is there a second request on that connection.
    stream.sender.finish();
    assert!(stream.receiver.receive::<Reply>().await.unwrap().is_none());
    let ended: NetError = connection.closed().await.into();
    assert!(
        matches!(
            ended,
            NetError::Closed {
                code: CloseCode::Done,
                ..
            }
        ),
        "{ended}"
    );
}

#[tokio::test]
async fn a_broken_request_does_not_use_a_token_up() {
    let cluster = Cluster::start("c");
    let token = invited(&cluster);
    let enroller = &cluster.host.enroller;
    let joining = |signing_request: &str| Joining {
        token: token.reveal(),
        signing_request: signing_request.into(),
        cluster: None,
        role: "gpu-actor".into(),
        name: "n7".parse().unwrap(),
    };
    let broken = enroller.join(&joining("no request"), now());
    assert!(matches!(broken, Reply::Refused(_)), "{broken:?}");
    let request = KeyRequest::new().unwrap();
    let joined = enroller.join(&joining(&request.signing_request), now());
    assert!(matches!(joined, Reply::Joined { .. }), "{joined:?}");
}

#[tokio::test]
async fn a_certificate_is_renewed_while_connections_stand() {
    let cluster = Cluster::start("c");
    let first = cluster.credential(Role::GpuActor, "n1");
    let path = cluster.path().join("n1.pem");
    first.save(&path).unwrap();
    let endpoint = Endpoint::open(&settings(), &first, false).unwrap();
    let client = Client::connect(&endpoint, cluster.address).await.unwrap();
    let fresh = renew(&client, &endpoint, &first, &path).await.unwrap();
    assert_eq!(fresh.identity, first.identity);
    assert_ne!(fresh.chain[0], first.chain[0]);
    assert_eq!(Credential::load(&path).unwrap().chain, fresh.chain);
    assert!(client.request(&Request::Status).await.is_ok());
    assert!(Client::connect(&endpoint, cluster.address).await.is_ok());
    let third = MEMBER_LIFE.0 / 3;
    let due = fresh.renewal().since(now()).0;
    assert!(due > third && due < 2 * third, "{due}");
}

#[tokio::test]
async fn the_clock_is_looked_at_often_for_no_timer_runs_while_a_machine_sleeps() {
    let held = Cluster::start("c").credential(Role::GpuActor, "n1");
    let due = held.renewal();
    assert_eq!(next_look(&held, now()), Some(LOOK));
    let soon = Micros(due.0 - 5);
    assert_eq!(next_look(&held, soon), Some(Duration::from_micros(5)));
    assert_eq!(next_look(&held, due), None);
    assert_eq!(next_look(&held, due.plus(MEMBER_LIFE)), None);
}

#[tokio::test]
async fn a_file_that_was_made_anew_heals_a_member_whose_certificate_expired() {
    let cluster = Cluster::start("c");
    let authority = cluster.host.enroller.authority();
    let (own, path) = (
        who("c", Role::GpuActor, "n1"),
        cluster.path().join("n1.pem"),
    );
    let past = now().since(Micros(MEMBER_LIFE.0 * 3));
    let expired = authority.issue(&own, MEMBER_LIFE, past).unwrap();
    let endpoint = Endpoint::open(&settings(), &expired, false).unwrap();
    let asked = async || match Client::connect(&endpoint, cluster.address).await {
        Ok(client) => client.request(&Request::Status).await.is_ok(),
        Err(_) => false,
    };
    assert!(!asked().await);
    let other = cluster.credential(Role::GpuActor, "n2");
    other.save(&path).unwrap();
    let refused = show_file(&endpoint, &expired, &path).unwrap_err();
    assert!(
        matches!(refused, RenewError::OtherIdentity { .. }),
        "{refused}"
    );
    cluster
        .credential(Role::GpuActor, "n1")
        .save(&path)
        .unwrap();
    show_file(&endpoint, &expired, &path).unwrap();
    assert!(asked().await);
}

#[tokio::test]
async fn expired_and_foreign_certificates_are_told_as_such() {
    let cluster = Cluster::start("c");
    let authority = cluster.host.enroller.authority();
    let past = now().since(Micros(MEMBER_LIFE.0 * 3));
    let expired = authority
        .issue(&who("c", Role::Client, "old"), MEMBER_LIFE, past)
        .unwrap();
    let foreign = Cluster::start("d").credential(Role::Client, "me");
    let same_name = Cluster::start("c").credential(Role::Client, "me");
    let ask = async |credential: &Credential| {
        let endpoint = Endpoint::open(&settings(), credential, false).unwrap();
        let client = Client::connect(&endpoint, cluster.address).await;
        match client {
            Ok(client) => client
                .request(&Request::Status)
                .await
                .unwrap_err()
                .to_string(),
            Err(error) => error.to_string(),
        }
    };
    let told = ask(&expired).await;
    assert_eq!(told, HandshakeFault::Expired.to_string());
    for other in [&foreign, &same_name] {
        let told = ask(other).await;
        assert_eq!(told, HandshakeFault::OtherAuthority.to_string());
    }
}

#[tokio::test]
async fn who_answers_must_have_the_role_that_is_wanted() {
    let cluster = Cluster::start("c");
    let node = cluster.member(Role::GpuActor, "n1");
    let wrong = node
        .connect(cluster.address, Role::GpuActor)
        .await
        .unwrap_err();
    assert_eq!(wrong.to_string(), HandshakeFault::OtherRole.to_string());
}
