//! Fetching from a model hub: a small server in the test speaks as the hub does.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use crate::sandbox::{Ran, Sandbox};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Serves the files of a folder as the model `me/tiny`; the thread ends with the test.
fn serve(folder: PathBuf, etag: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (folder, stream) = (folder.clone(), stream.unwrap());
            std::thread::spawn(move || answer(stream, &folder, etag));
        }
    });
    address
}

/// Answers requests of one connection until it closes.
fn answer(mut stream: TcpStream, folder: &std::path::Path, etag: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut request, mut range) = (String::new(), None);
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                range = Some(value.trim().to_owned());
            }
        }
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let reply = reply(&path, range.as_deref(), folder, etag);
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

fn reply(path: &str, range: Option<&str>, folder: &std::path::Path, etag: &str) -> Vec<u8> {
    let respond = |status: &str, headers: &str, body: &[u8]| {
        let mut reply = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        )
        .into_bytes();
        reply.extend_from_slice(body);
        reply
    };
    if path.starts_with("/api/models/me/tiny") {
        let names = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let list: Vec<String> = names
            .map(|name| format!("{{\"rfilename\": \"{name}\"}}"))
            .collect();
        let body = format!(
            "{{\"sha\": \"{COMMIT}\", \"siblings\": [{}]}}",
            list.join(",")
        );
        return respond(
            "200 OK",
            "Content-Type: application/json\r\n",
            body.as_bytes(),
        );
    }
    let name = path.strip_prefix(&format!("/me/tiny/resolve/{COMMIT}/"));
    let Some(bytes) = name.and_then(|name| fs::read(folder.join(name)).ok()) else {
        return respond("404 Not Found", "", b"");
    };
    let (start, end) = range
        .and_then(|range| range.split_once('-'))
        .unwrap_or(("0", ""));
    let start: usize = start.parse().unwrap();
    let end: usize = end.parse().unwrap_or(bytes.len() - 1);
    let etag = if etag.is_empty() {
        format!("{:040x}", name.unwrap_or_default().len() + 1)
    } else {
        etag.to_owned()
    };
    let headers = format!(
        "ETag: \"{etag}\"\r\nx-repo-commit: {COMMIT}\r\nContent-Range: bytes {start}-{end}/{}\r\n",
        bytes.len()
    );
    respond("206 Partial Content", &headers, &bytes[start..=end])
}

fn pull(sandbox: &Sandbox, endpoint: &str, name: &str) -> Ran {
    let mut command = sandbox.command(&["model", "pull", name, "--json"]);
    Ran::of(&command.env("HF_ENDPOINT", endpoint).output().unwrap())
}

#[test]
fn a_model_of_the_hub_is_fetched_once_and_used_by_name() {
    let sandbox = Sandbox::new();
    let endpoint = serve(sandbox.tiny_model(), "");
    let told = pull(&sandbox, &endpoint, "me/tiny").ended_with(0).last();
    assert_eq!(told["fetched_now"], true);
    assert!(told["source"].as_str().unwrap().ends_with(COMMIT));
    // The server is not asked again.
    let told = pull(&sandbox, "http://127.0.0.1:9", "me/tiny")
        .ended_with(0)
        .last();
    assert_eq!(told["fetched_now"], false);
    let told = sandbox
        .run(&["model", "inspect", "me/tiny", "--json"])
        .ended_with(0)
        .last();
    assert_eq!(told["name"], "me/tiny");
}

#[test]
fn what_the_hub_says_is_not_trusted() {
    let sandbox = Sandbox::new();
    let endpoint = serve(sandbox.tiny_model(), "../../../../escape");
    pull(&sandbox, &endpoint, "me/tiny")
        .ended_with(4)
        .said(&["no usable hash"]);
    // A promise of content that is not kept.
    let promised = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let other = Sandbox::new();
    let endpoint = serve(other.tiny_model(), promised);
    pull(&other, &endpoint, "me/tiny")
        .ended_with(4)
        .said(&["the hub promised aaaa"]);
    assert!(other.names("cache/spotmux/models").is_empty());
}

#[test]
fn a_hub_that_is_out_of_reach_or_has_no_such_model() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["model", "pull", "me/tiny"])
        .ended_with(4)
        .said(&["cannot fetch me/tiny", "without a network"]);
    let endpoint = serve(sandbox.tiny_model(), "");
    pull(&sandbox, &endpoint, "me/other")
        .ended_with(4)
        .said(&["404", "spelling"]);
}
