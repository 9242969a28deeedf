//! `/metrics` and `/healthz` over HTTP/1.1: one request a connection, a few connections at once, nothing else.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::{interval, timeout};

use super::registry::Registry;

/// Connections at once; who comes beyond them waits in the backlog of the system.
const CONNECTIONS: usize = 8;
/// Largest request, headers and all.
const REQUEST: usize = 8 << 10;
/// A request must be there, and its answer taken, within so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// What histograms were told is summed up so often.
const SUM_UP: Duration = Duration::from_secs(5);

/// Why a process is not well; none when it is.
pub type Health = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Opens the port; within a runtime of tokio.
///
/// # Errors
/// When the address cannot be had.
pub fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Opens the port and answers on this runtime until it ends. A port that cannot be had costs the metrics, not the
/// process.
pub fn start(runtime: &Runtime, address: SocketAddr, registry: Registry, health: Health) {
    let _inside = runtime.enter();
    match open(address) {
        Ok(listener) => {
            runtime.spawn(serve(listener, registry, health));
            tracing::info!(%address, "metrics served");
        }
        Err(error) => tracing::error!(%address, %error, "metrics are not served"),
    }
}

/// After a connection that could not be taken.
const REST: Duration = Duration::from_millis(100);

/// Answers until the runtime ends.
pub async fn serve(listener: TcpListener, registry: Registry, health: Health) {
    tokio::join!(answer(listener, &registry, &health), sum_up(&registry));
}

async fn sum_up(registry: &Registry) {
    let mut every = interval(SUM_UP);
    loop {
        every.tick().await;
        registry.sum_up();
    }
}

fn answer(listener: TcpListener, registry: &Registry, health: &Health) -> impl Future<Output = ()> {
    let (registry, health) = (registry.clone(), Arc::clone(health));
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    async move {
        loop {
            let place = Arc::clone(&room).acquire_owned().await;
            let place = place.expect("nobody closes it");
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, or a peer that left already: there is nothing to answer, and the next may go the same.
                pause(REST).await;
                continue;
            };
            let (registry, health) = (registry.clone(), Arc::clone(&health));
            tokio::spawn(async move {
                // A peer that is slow or gone has no answer.
                let _ = timeout(PATIENCE, converse(stream, &registry, &health)).await;
                drop(place);
            });
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a descriptor that is free again is announced by nobody"
)]
async fn pause(so_long: Duration) {
    tokio::time::sleep(so_long).await;
}

async fn converse(
    mut stream: TcpStream,
    registry: &Registry,
    health: &Health,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&piece[..read]);
        if request.len() > REQUEST {
            let line = "431 Request Header Fields Too Large";
            return reply(&mut stream, line, "a request has at most 8 KiB here\n").await;
        }
    }
    match target(&request) {
        Some("/metrics") => reply(&mut stream, "200 OK", &registry.text()).await,
        Some("/healthz") => match health() {
            None => reply(&mut stream, "200 OK", "ok\n").await,
            Some(why) => reply(&mut stream, "503 Service Unavailable", &format!("{why}\n")).await,
        },
        _ => reply(&mut stream, "404 Not Found", "GET /metrics or /healthz\n").await,
    }
}

/// What a request wants to get; none when it is no `GET` of HTTP/1.
fn target(request: &[u8]) -> Option<&str> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let known = method == "GET" && version.starts_with("HTTP/1.") && words.next().is_none();
    known.then_some(target)
}

async fn reply(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::telemetry::names::COORDINATOR;

    async fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn metrics_and_health_are_answered_and_nothing_else() {
        let listener = open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let well = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&well);
        let health: Health = Arc::new(move || {
            let well = told.load(Ordering::Relaxed);
            (!well).then(|| "it stands still".to_owned())
        });
        let registry = Registry::new("test", "0", COORDINATOR);
        tokio::spawn(serve(listener, registry, health));
        let metrics = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("\nspotmux_term 0\n"), "{metrics}");
        let health = ask(address, b"GET /healthz HTTP/1.0\r\n\r\n").await;
        assert!(health.ends_with("\r\n\r\nok\n"), "{health}");
        well.store(false, Ordering::Relaxed);
        let health = ask(address, b"GET /healthz HTTP/1.1\r\n\r\n").await;
        assert!(health.starts_with("HTTP/1.1 503"), "{health}");
        for wrong in [
            "GET /metrics/ HTTP/1.1\r\n\r\n",
            "POST /metrics HTTP/1.1\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "\r\n\r\n",
        ] {
            let reply = ask(address, wrong.as_bytes()).await;
            assert!(reply.starts_with("HTTP/1.1 404"), "{wrong}: {reply}");
        }
        // Exactly one piece beyond the limit, so that nothing is left unread when the answer comes.
        let long = vec![b'a'; REQUEST + 1];
        let reply = ask(address, &long).await;
        assert!(reply.starts_with("HTTP/1.1 431"), "{reply}");
    }

    #[tokio::test]
    async fn who_says_nothing_keeps_no_one_else_away() {
        let listener = open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let registry = Registry::new("test", "0", COORDINATOR);
        tokio::spawn(serve(listener, registry, Arc::new(|| None)));
        let mut silent = Vec::new();
        for _ in 1..CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let reply = ask(address, b"GET /healthz HTTP/1.1\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        drop(silent);
    }
}
