#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use shared::config::places;

use super::super::worst;
use super::*;

fn loaded(folder: &std::path::Path, text: &str) -> Loaded {
    let path = folder.join("cluster.toml");
    fs::write(&path, text).unwrap();
    shared::config::load::load(&path, [], &[]).unwrap()
}

#[test]
fn a_port_in_use_is_found_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let text = format!(
        "[coordinator]\nlisten = '{address}'\nmetrics = '127.0.0.1:0'\n[telemetry]\nmetrics = false\n"
    );
    let loaded = loaded(folder.path(), &text);
    let found = ports(&loaded);
    assert_eq!(worst(&found), Verdict::Fail);
    assert!(
        found[0].found.contains("coordinator.listen is in use"),
        "{found:?}"
    );
    assert!(found[0].remedy.contains("cluster.toml:2"), "{found:?}");
    drop(taken);
    assert_eq!(worst(&ports(&loaded)), Verdict::Ok);
}

#[test]
fn clocks_are_compared_within_the_time_of_the_answer() {
    let at = |seconds: u64| Micros(seconds * 1_000_000);
    let verdict = |other| skew(other, at(1000), at(1001)).verdict;
    assert_eq!(verdict(at(1000)), Verdict::Ok);
    assert_eq!(verdict(at(1002)), Verdict::Ok);
    assert_eq!(verdict(at(990)), Verdict::Warn);
    assert_eq!(verdict(at(1010)), Verdict::Warn);
    assert_eq!(verdict(at(600)), Verdict::Fail);
    assert_eq!(verdict(at(1400)), Verdict::Fail);
}

#[test]
fn certificates_are_absent_sound_near_their_end_or_over() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = loaded(folder.path(), "");
    assert_eq!(worst(&certificates(&loaded)), Verdict::Warn);
    security::ensure(&loaded).unwrap();
    assert_eq!(worst(&certificates(&loaded)), Verdict::Ok);
    fs::write(
        security::directory(&loaded).join(places::OPERATOR),
        "nonsense",
    )
    .unwrap();
    assert_eq!(worst(&certificates(&loaded)), Verdict::Fail);
    let verdict = |now| life("a", Micros(10), Micros(20), Micros(30), Micros(now), "").verdict;
    assert_eq!(
        [9, 10, 19].map(verdict),
        [Verdict::Fail, Verdict::Ok, Verdict::Ok]
    );
    assert_eq!(
        [20, 29, 30].map(verdict),
        [Verdict::Warn, Verdict::Warn, Verdict::Fail]
    );
}

#[test]
fn a_node_is_asked_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!("[[node]]\nname = 'n1'\nmetrics = '{address}'\n");
    let loaded = loaded(folder.path(), &text);
    let answers = ["200 OK", "503 Service Unavailable"];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            // All of it: a socket that is closed with something unread takes the answer back.
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.push(byte[0]);
            }
            write!(stream, "HTTP/1.1 {answer}\r\n\r\nthe device hangs\n").unwrap();
        }
    });
    assert_eq!(metrics(&loaded)[0].verdict, Verdict::Ok);
    let ill = metrics(&loaded).remove(0);
    assert_eq!(ill.verdict, Verdict::Fail);
    assert!(ill.found.ends_with("the device hangs"), "{ill:?}");
    server.join().unwrap();
    // Nobody listens any more.
    assert_eq!(metrics(&loaded)[0].verdict, Verdict::Warn);
}

#[test]
fn an_absent_model_fails_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        models: Some(folder.path().join("cache")),
        ..Settings::default()
    };
    let found = model(&loaded(folder.path(), ""), &settings);
    assert_eq!(found[0].verdict, Verdict::Fail);
    assert!(found[0].remedy.contains("spotmux model pull"), "{found:?}");
}
