//! How fast a link between stages is, beside a bare stream of QUIC with the same bytes: both ends here, over loopback.
//!
//! Both carry as many bytes there as back, at once, as stages do. Clocks are given: this file reads none.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use shared::ids::{ClusterName, NodeName, PlanEpoch};
use shared::net::authority::{Authority, AuthorityError, MEMBER_LIFE};
use shared::net::endpoint::{Endpoint, EndpointSettings, Peer};
use shared::net::fault::NetError;
use shared::net::identity::{Identity, Role};
use shared::net::router::{Router, RouterLimits, Service, Stop};
use shared::net::stream::{Receiver, Sender, Stream};
use shared::units::Micros;
use shared::wire::opening::{LinkOpening, Opening};
use shared::wire::request::Request;
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::{QuicLink, over};
use crate::link::bell::Bell;
use crate::link::transit::Transits;
use crate::link::{Chunk, ChunkHeader, ChunkLink, Direction, LinkError, Parcel};

/// Chunks under way, each way, as between stages.
const CREDITS: u32 = 8;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured, and by which clocks.
pub struct Gauge {
    /// Of this length, in bytes; a multiple of four.
    pub chunk_bytes: usize,
    /// So many there, and as many back.
    pub chunks: usize,
    /// So often in turns; the best counts.
    pub rounds: usize,
    /// An empty folder, for keys.
    pub folder: PathBuf,
    /// Since 1970.
    pub now: Micros,
    /// Time that passes.
    pub clock: fn() -> Duration,
    /// Processor seconds of this process; none where the system does not tell.
    pub processor: fn() -> Option<f64>,
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gauge")
            .field("chunk_bytes", &self.chunk_bytes)
            .field("chunks", &self.chunks)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

/// Bytes, both ways together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Per second.
    pub per_second: f64,
    /// Per second of a processor, both ends together.
    pub per_processor_second: f64,
}

impl Rate {
    fn or_better(self, other: Self) -> Self {
        Self {
            per_second: self.per_second.max(other.per_second),
            per_processor_second: self.per_processor_second.max(other.per_processor_second),
        }
    }
}

/// The best of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// A bare stream that looks at nothing: one buffer is sent over and over, what comes is dropped.
    pub bare: Rate,
    /// A bare stream that carries values: from buffers that differ, into buffers in one piece.
    pub kept: Rate,
    /// The link.
    pub link: Rate,
}

/// Says why nothing was measured.
#[derive(Debug, Error)]
pub enum GaugeError {
    /// The network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Certificates.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system.
    #[error("the system refuses a thread: {0}")]
    System(#[from] std::io::Error),
    /// Nothing moved.
    #[error("nothing moved for {} s", PATIENCE.as_secs())]
    Silent,
    /// An end of the measurement broke.
    #[error("an end of the measurement broke")]
    Broken,
}

struct Taker(mpsc::UnboundedSender<Stream>);

impl Service for Taker {
    async fn request(&self, _: &Peer, _: Request, _: &mut Stream, _: Stop) -> Result<(), NetError> {
        Ok(())
    }

    async fn stream(
        &self,
        _: Peer,
        _: Opening,
        stream: Stream,
        mut stop: Stop,
    ) -> Result<(), NetError> {
        // Who is gone takes nothing.
        let _ = self.0.send(stream);
        stop.wait().await;
        Ok(())
    }
}

/// Two members that are connected.
struct Pair {
    runtime: Runtime,
    taken: mpsc::UnboundedReceiver<Stream>,
    peer: Peer,
    _router: Router,
    _first: Endpoint,
}

impl Pair {
    fn connect(gauge: &Gauge) -> Result<Self, GaugeError> {
        let runtime = Runtime::new()?;
        let cluster = ClusterName::new("gauge").map_err(|_| GaugeError::Broken)?;
        let path = gauge.folder.join("authority.pem");
        let authority = Authority::create(&path, &cluster, gauge.now)?;
        let member = |name: &str| {
            let identity = Identity {
                cluster: cluster.clone(),
                role: Role::GpuActor,
                name: NodeName::new(name).map_err(|_| GaugeError::Broken)?,
            };
            Ok::<_, GaugeError>(authority.issue(&identity, MEMBER_LIFE, gauge.now)?)
        };
        let (first, second) = (member("first")?, member("second")?);
        let settings = EndpointSettings::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (give, taken) = mpsc::unbounded_channel();
        let (first, router, peer) = runtime.block_on(async {
            let second = Endpoint::open(&settings, &second, true)?;
            let address = second.address()?;
            let router = Router::start(Arc::new(second), Taker(give), RouterLimits::default());
            let first = Endpoint::open(&settings, &first, false)?;
            let peer = first.connect(address, Role::GpuActor).await?;
            Ok::<_, NetError>((first, router, peer))
        })?;
        Ok(Self {
            runtime,
            taken,
            peer,
            _router: router,
            _first: first,
        })
    }

    fn streams(&mut self, opening: LinkOpening) -> Result<[Stream; 2], GaugeError> {
        self.runtime.block_on(async {
            let ours = self.peer.open(Opening::Link(opening)).await?;
            let theirs = self.taken.recv().await.ok_or(GaugeError::Broken)?;
            Ok([ours, theirs])
        })
    }
}

impl Gauge {
    /// Measures.
    ///
    /// # Errors
    /// [`GaugeError`].
    pub fn measure(&self) -> Result<Rates, GaugeError> {
        let mut pair = Pair::connect(self)?;
        let mut best = Rates::default();
        let opening = LinkOpening {
            epoch: PlanEpoch(1),
            from_replica: 0,
            replica: 0,
            from_stage: 0,
            to_stage: 1,
            credits: CREDITS,
            narrow: false,
        };
        for _ in 0..self.rounds {
            let streams = pair.streams(opening)?;
            let bare = self.timed(|| self.bare(&pair.runtime, streams))?;
            let [ours, theirs] = pair.streams(opening)?;
            let ends = [ours, theirs].map(|stream| {
                let bell = Bell::default();
                let (link, carrier) = over(stream, opening, bell.clone(), Transits::default());
                pair.runtime.spawn(carrier);
                End { link, bell }
            });
            let link = self.timed(|| self.linked(ends))?;
            let streams = pair.streams(opening)?;
            let kept = self.timed(|| self.kept(&pair.runtime, streams))?;
            best.bare = best.bare.or_better(bare);
            best.kept = best.kept.or_better(kept);
            best.link = best.link.or_better(link);
        }
        Ok(best)
    }

    fn timed(&self, work: impl FnOnce() -> Result<(), GaugeError>) -> Result<Rate, GaugeError> {
        let (start, before) = ((self.clock)(), (self.processor)());
        work()?;
        let seconds = ((self.clock)() - start).as_secs_f64();
        let used = (self.processor)()
            .zip(before)
            .map(|(after, before)| after - before);
        let bytes = 2.0 * self.chunks as f64 * self.chunk_bytes as f64;
        Ok(Rate {
            per_second: bytes / seconds,
            per_processor_second: used
                .filter(|used| *used > 0.0)
                .map_or(0.0, |used| bytes / used),
        })
    }

    /// Both ends send and take, and look at nothing.
    fn bare(&self, runtime: &Runtime, streams: [Stream; 2]) -> Result<(), GaugeError> {
        let (chunks, chunk_bytes) = (self.chunks, self.chunk_bytes);
        let end = move |stream: Stream| async move {
            let (mut sender, mut receiver) = (stream.sender, stream.receiver);
            let bytes = [Bytes::from(vec![1; chunk_bytes])];
            let send = send(&mut sender, &bytes, chunks);
            tokio::try_join!(send, take(&mut receiver, chunk_bytes)).map(|_| ())
        };
        let [ours, theirs] = streams.map(end);
        both(runtime, ours, theirs)
    }

    /// Both ends send from as many buffers as a link has credits, and have what comes in one piece.
    fn kept(&self, runtime: &Runtime, streams: [Stream; 2]) -> Result<(), GaugeError> {
        let (chunks, chunk_bytes) = (self.chunks, self.chunk_bytes);
        let buffers = move || (0..CREDITS).map(move |_| vec![1; chunk_bytes]);
        let end = move |stream: Stream| async move {
            let (mut sender, mut receiver) = (stream.sender, stream.receiver);
            let from: Vec<Bytes> = buffers().map(Bytes::from).collect();
            let mut into: Vec<Vec<u8>> = buffers().collect();
            let send = send(&mut sender, &from, chunks);
            tokio::try_join!(send, keep(&mut receiver, &mut into, chunks)).map(|_| ())
        };
        let [ours, theirs] = streams.map(end);
        both(runtime, ours, theirs)
    }

    /// Both ends send and take, each on a thread of its own as stages are. Either has as many chunks to send at once as
    /// it may, as stages have in the midst of a round.
    fn linked(&self, [ours, theirs]: [End; 2]) -> Result<(), GaugeError> {
        // Making values is the stage's cost: what came is sent again.
        let values = || vec![1.0_f32; self.chunk_bytes / size_of::<f32>()];
        let fresh = || (0..CREDITS).map(|_| values()).collect();
        let (ahead, back) = (fresh(), fresh());
        thread::scope(|scope| {
            let other = scope.spawn(|| theirs.run(Direction::Backward, self.chunks, back));
            ours.run(Direction::Forward, self.chunks, ahead)?;
            other.join().map_err(|_| GaugeError::Broken)?
        })
    }
}

/// Runs both ends, each on a thread of the network.
fn both(
    runtime: &Runtime,
    ours: impl Future<Output = Result<(), NetError>> + Send + 'static,
    theirs: impl Future<Output = Result<(), NetError>> + Send + 'static,
) -> Result<(), GaugeError> {
    runtime.block_on(async {
        for end in [tokio::spawn(ours), tokio::spawn(theirs)] {
            end.await.map_err(|_| GaugeError::Broken)??;
        }
        Ok(())
    })
}

async fn send(sender: &mut Sender, from: &[Bytes], chunks: usize) -> Result<(), NetError> {
    for bytes in from.iter().cycle().take(chunks) {
        sender.send_raw(bytes.clone()).await?;
    }
    sender.finish();
    sender.delivered().await
}

async fn take(receiver: &mut Receiver, most: usize) -> Result<(), NetError> {
    while receiver.piece(most).await?.is_some() {}
    Ok(())
}

async fn keep(
    receiver: &mut Receiver,
    into: &mut [Vec<u8>],
    chunks: usize,
) -> Result<(), NetError> {
    let buffers = into.len();
    for chunk in 0..chunks {
        let buffer = &mut into[chunk % buffers];
        receiver.read_into(buffer, "chunk").await?;
    }
    take(receiver, 1).await
}

/// One end of the link, and the bell it rings.
struct End {
    link: QuicLink,
    bell: Bell,
}

impl End {
    /// Sends what it has, and has what came, until so many went and came.
    fn run(
        mut self,
        direction: Direction,
        chunks: usize,
        mut has: VecDeque<Vec<f32>>,
    ) -> Result<(), GaugeError> {
        let (mut sent, mut came) = (0, 0);
        while sent < chunks || came < chunks {
            let heard = self.bell.heard();
            let mut moved = false;
            while sent < chunks
                && self.link.credit() > 0
                && let Some(values) = has.pop_front()
            {
                let header = ChunkHeader {
                    epoch: 1,
                    micro_batch: sent as u64,
                    direction,
                    rows: values.len(),
                    width: 1,
                };
                self.link.send(Parcel::Chunk(Chunk { header, values }))?;
                sent += 1;
                moved = true;
            }
            while came < chunks
                && let Some(parcel) = self.link.receive()?
            {
                if let Parcel::Chunk(chunk) = parcel {
                    has.push_back(chunk.values);
                    came += 1;
                }
                moved = true;
            }
            if !moved && !self.bell.wait(heard, PATIENCE) {
                return Err(GaugeError::Silent);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Certificates are judged by the system's clock.
    #[expect(clippy::disallowed_methods, reason = "a certificate must hold now")]
    fn today() -> Micros {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Micros(u64::try_from(since.unwrap().as_micros()).unwrap())
    }

    #[test]
    fn as_much_comes_as_goes_and_both_are_timed() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static LOOKS: AtomicU64 = AtomicU64::new(0);
        let folder = std::env::temp_dir().join(format!("spotmux-gauge-{}", std::process::id()));
        let gauge = Gauge {
            chunk_bytes: 40_000,
            chunks: 20,
            rounds: 1,
            folder: folder.clone(),
            now: today(),
            clock: || Duration::from_secs(LOOKS.fetch_add(1, Ordering::Relaxed)),
            processor: || None,
        };
        let rates = gauge.measure();
        std::fs::remove_dir_all(folder).unwrap();
        // Each took a second of this clock.
        let rate = Rate {
            per_second: 1_600_000.0,
            per_processor_second: 0.0,
        };
        assert_eq!(
            rates.unwrap(),
            Rates {
                bare: rate,
                kept: rate,
                link: rate
            }
        );
    }
}
