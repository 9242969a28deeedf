//! The provider `aws` against moto's server, with errors put in between. Without moto it says so and passes: `.ci/run` installs it.
//!
//! moto is looked for as `SPOTMUX_MOTO`, a Python that has it (`pip install 'moto[ec2,server]' boto3`).

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that starts a server and waits for it on the real clock"
)]

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use market_actor::market::Pool;
use market_actor::provider::aws::words::Fleet;
use market_actor::provider::aws::{Account, Aws};
use market_actor::provider::{Kind, MachineState, Provider, ProviderError, Want};
use shared::ids::NodeName;
use shared::units::{MicroUsd, Micros};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What stands between the provider and the server does.
const PASS: u8 = 0;
const THROTTLE: u8 = 1;
const NO_CAPACITY: u8 = 2;
/// The server does it, and the answer is lost.
const LOSE: u8 = 3;

const SET_UP: &str = "
import boto3, sys
ec2 = boto3.client('ec2', region_name='us-east-1', endpoint_url=sys.argv[1], aws_access_key_id='a', aws_secret_access_key='b')
image = ec2.describe_images()['Images'][0]['ImageId']
ec2.create_launch_template(LaunchTemplateName='spotmux', LaunchTemplateData={'ImageId': image, 'InstanceType': 'g5.xlarge'})
";

/// A server that ends with the test.
struct Moto {
    child: Child,
    port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn moto() -> Option<Moto> {
    let python = std::env::var("SPOTMUX_MOTO").ok()?;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let server = "from moto.server import main; import sys; main(sys.argv[1:])";
    let child = Command::new(&python)
        .args(["-c", server, "-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let moto = Moto { child, port };
    let begin = SystemTime::now();
    loop {
        let set_up = Command::new(&python)
            .args(["-c", SET_UP, &format!("http://127.0.0.1:{port}")])
            .output()
            .unwrap();
        if set_up.status.success() {
            return Some(moto);
        }
        assert!(
            begin.elapsed().unwrap() < Duration::from_secs(120),
            "{}",
            String::from_utf8_lossy(&set_up.stderr)
        );
    }
}

/// Passes requests on, or does what `mode` says to those whose body has `call` in it.
async fn between(port: u16, mode: Arc<AtomicU8>, call: Arc<Mutex<&'static str>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mode, call) = (Arc::clone(&mode), Arc::clone(&call));
            tokio::spawn(async move {
                let mut request = Vec::new();
                let mut whole = usize::MAX;
                while request.len() < whole {
                    let mut piece = [0; 4096];
                    let read = stream.read(&mut piece).await.unwrap_or(0);
                    if read == 0 {
                        return;
                    }
                    request.extend_from_slice(&piece[..read]);
                    let text = String::from_utf8_lossy(&request).to_lowercase();
                    if let Some(end) = text.find("\r\n\r\n") {
                        let length = text.split("content-length: ").nth(1);
                        let length =
                            length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
                        whole = end + 4 + length.unwrap_or(0);
                    }
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                let meant = text.contains(*call.lock().unwrap());
                let error = |status: &str, code: &str| {
                    let body = format!(
                        "<Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></Response>"
                    );
                    format!(
                        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    )
                };
                let answer = match mode.load(Ordering::SeqCst) {
                    THROTTLE if meant => {
                        error("400 Bad Request", "RequestLimitExceeded").into_bytes()
                    }
                    NO_CAPACITY if meant => {
                        error("400 Bad Request", "InsufficientInstanceCapacity").into_bytes()
                    }
                    mode => {
                        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                        // The server must not wait for a second request.
                        let closing = text.replacen("\r\n", "\r\nConnection: close\r\n", 1);
                        server.write_all(closing.as_bytes()).await.unwrap();
                        let mut answer = Vec::new();
                        let _ = server.read_to_end(&mut answer).await;
                        if mode == LOSE && meant {
                            Vec::new()
                        } else {
                            answer
                        }
                    }
                };
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    own
}

fn want(token: &str, kind: Kind) -> Want {
    Want {
        token: NodeName::new(token).unwrap(),
        pool: Pool {
            provider: "aws".into(),
            region: "us-east-1".into(),
            zone: "us-east-1a".into(),
            machine: "g5.xlarge".into(),
        },
        kind,
    }
}

#[test]
fn machines_of_ec2_are_asked_for_once_listed_and_ended_through_errors() {
    let Some(moto) = moto() else {
        println!(
            "SKIPPED: no SPOTMUX_MOTO, a Python with moto[ec2,server] and boto3: EC2 calls are not tried"
        );
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mode = Arc::new(AtomicU8::new(PASS));
        let call = Arc::new(Mutex::new("Action=CreateFleet"));
        let port = between(moto.port, Arc::clone(&mode), Arc::clone(&call)).await;
        let account = Account {
            endpoint: format!("http://127.0.0.1:{port}"),
            region: "us-east-1".into(),
            access_key_id: "a".into(),
            secret_access_key: "b".into(),
            session_token: None,
            fleet: Fleet {
                template: "spotmux".into(),
                types: vec!["g5.xlarge".into()],
                cluster: "test".into(),
            },
            spot_price: MicroUsd(300_000),
            on_demand_price: MicroUsd(1_000_000),
            most: 4,
        };
        let clock = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            Micros(since.as_micros() as u64)
        };
        let mut aws = Aws::new(account, Arc::new(clock)).unwrap();
        assert_eq!(aws.list().await.unwrap(), []);

        let first = aws.acquire(&want("m-1", Kind::Spot)).await.unwrap();
        // moto makes a second machine of the same client token: the look-up by tag must not.
        let again = aws.acquire(&want("m-1", Kind::Spot)).await.unwrap();
        assert_eq!(again.id, first.id);

        mode.store(NO_CAPACITY, Ordering::SeqCst);
        let none = aws.acquire(&want("m-2", Kind::Spot)).await.unwrap_err();
        assert!(matches!(none, ProviderError::NoCapacity { .. }), "{none}");
        mode.store(THROTTLE, Ordering::SeqCst);
        let slow = aws.acquire(&want("m-2", Kind::Spot)).await.unwrap_err();
        assert!(matches!(slow, ProviderError::Throttled { .. }), "{slow}");

        // The answer is lost, the machine is not.
        mode.store(LOSE, Ordering::SeqCst);
        let lost = aws.acquire(&want("m-3", Kind::OnDemand)).await.unwrap_err();
        assert!(!lost.is_certain(), "{lost}");
        mode.store(PASS, Ordering::SeqCst);
        let found = aws.acquire(&want("m-3", Kind::OnDemand)).await.unwrap();
        let mut listed = aws.list().await.unwrap();
        listed.sort_by(|a, b| a.token.cmp(&b.token));
        let tokens: Vec<&str> = listed
            .iter()
            .filter_map(|one| one.token.as_ref().map(NodeName::as_str))
            .collect();
        assert_eq!(tokens, ["m-1", "m-3"], "one machine a request");
        assert!(listed.iter().all(|one| one.state != MachineState::Ending));
        assert_eq!(listed[0].kind, Kind::Spot);

        for id in [&first.id, &found.id, &first.id] {
            aws.release(id).await.unwrap();
        }
        let left = aws.list().await.unwrap();
        assert!(
            left.iter().all(|one| one.state == MachineState::Ending),
            "{left:?}"
        );
        // moto tells prices of another product than was asked for: what the operator says is taken.
        let offers = aws.offers().await.unwrap();
        assert_eq!(offers.len(), 1);
        assert_eq!(offers[0].spot_price, Some(MicroUsd(300_000)));
    });
}
