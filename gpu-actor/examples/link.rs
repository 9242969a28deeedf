//! Throughput of a link between stages against a bare stream of QUIC with the same bytes, over loopback.
//!
//! `cargo run --release -p gpu-actor --example link [MIB] [CHUNK_KIB]`

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use gpu_actor::link::bell::Bell;
use gpu_actor::link::quic::{QuicLink, over};
use gpu_actor::link::{Chunk, ChunkHeader, ChunkLink, Direction, Parcel};
use shared::ids::PlanEpoch;
use shared::net::authority::{Authority, MEMBER_LIFE};
use shared::net::endpoint::{Endpoint, EndpointSettings, Peer};
use shared::net::fault::NetError;
use shared::net::identity::{Identity, Role};
use shared::net::router::{Router, RouterLimits, Service, Stop};
use shared::net::stream::Stream;
use shared::units::Micros;
use shared::wire::opening::{LinkOpening, Opening};
use shared::wire::request::Request;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);
const CREDITS: u32 = 4;

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

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |default: usize| words.next().map_or(Ok(default), |word| word.parse());
    let (total, chunk) = (number(1024)? << 20, number(4096)? << 10);
    let count = (total / chunk).max(1);
    let runtime = tokio::runtime::Runtime::new()?;

    let folder = std::env::temp_dir().join(format!("spotmux-link-{}", std::process::id()));
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let now = Micros(u64::try_from(since.as_micros())?);
    let authority = Authority::create(&folder.join("authority.pem"), &"bench".parse()?, now)?;
    std::fs::remove_dir_all(&folder)?;
    let member = |name: &str| -> Result<_, Box<dyn Error>> {
        let identity = Identity {
            cluster: "bench".parse()?,
            role: Role::GpuActor,
            name: name.parse()?,
        };
        Ok(authority.issue(&identity, MEMBER_LIFE, now)?)
    };
    let (first, second) = (member("first")?, member("second")?);
    let anywhere: SocketAddr = "127.0.0.1:0".parse()?;
    let settings = EndpointSettings::at(anywhere);
    let opening = LinkOpening {
        epoch: PlanEpoch(1),
        replica: 0,
        from_stage: 0,
        to_stage: 1,
        credits: CREDITS,
        narrow: false,
    };
    let (give, mut taken) = mpsc::unbounded_channel();
    let (_endpoint, _router, peer) = runtime.block_on(async {
        let second = Endpoint::open(&settings, &second, true)?;
        let address = second.address()?;
        let router = Router::start(Arc::new(second), Taker(give), RouterLimits::default());
        let first = Endpoint::open(&settings, &first, false)?;
        let peer = first.connect(address, Role::GpuActor).await?;
        Ok::<_, NetError>((first, router, peer))
    })?;

    let mut pair = || {
        runtime.block_on(async {
            let ours = peer.open(Opening::Link(opening)).await?;
            let theirs = taken.recv().await.ok_or("no stream came")?;
            Ok::<_, Box<dyn Error>>([ours, theirs])
        })
    };
    let gigabytes = (count * chunk) as f64 / 1e9;
    let rate = |start: Instant, cpu: f64| {
        let used = cpu_seconds() - cpu;
        (gigabytes / start.elapsed().as_secs_f64(), gigabytes / used)
    };
    let (mut bares, mut links) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let [mut ours, mut theirs] = pair()?;
        let (start, cpu) = (Instant::now(), cpu_seconds());
        runtime.block_on(async {
            let bytes = Bytes::from(vec![1; chunk]);
            let send = async move {
                for _ in 0..count {
                    ours.sender.send_raw(bytes.clone()).await?;
                }
                ours.sender.finish();
                ours.sender.delivered().await
            };
            let sent = tokio::spawn(send);
            while theirs.receiver.piece(chunk).await?.is_some() {}
            theirs.sender.finish();
            sent.await??;
            Ok::<_, Box<dyn Error>>(())
        })?;
        bares.push(rate(start, cpu));

        let [ours, theirs] = pair()?;
        let bells = [Bell::default(), Bell::default()];
        let (a, carrier) = over(ours, opening, bells[0].clone());
        runtime.spawn(carrier);
        let (b, carrier) = over(theirs, opening, bells[1].clone());
        runtime.spawn(carrier);
        let (start, cpu) = (Instant::now(), cpu_seconds());
        through_link([a, b], &bells, count, chunk)?;
        links.push(rate(start, cpu));
    }
    let best = |rates: &[(f64, f64)]| {
        let most = |(a, b): (f64, f64), (c, d): &(f64, f64)| (a.max(*c), b.max(*d));
        rates.iter().fold((0.0, 0.0), most)
    };
    let (bare, link) = (best(&bares), best(&links));
    println!("{count} chunks of {} KiB, best of three", chunk >> 10);
    for (what, bare, link) in [
        ("s", bare.0, link.0),
        ("CPU-s of both sides", bare.1, link.1),
    ] {
        let share = link / bare * 100.0;
        println!("bare stream {bare:.3} GB   link {link:.3} GB per {what}   {share:.0} %");
    }
    Ok(())
}

/// Sends so many chunks from one end and takes them at the other, each on a thread of its own.
fn through_link(
    [mut a, mut b]: [QuicLink; 2],
    bells: &[Bell; 2],
    count: usize,
    chunk: usize,
) -> Result<(), Box<dyn Error>> {
    // Making values is the stage's cost: the sender uses those again that arrived.
    let (give_back, given_back) = std::sync::mpsc::channel();
    for _ in 0..=CREDITS {
        give_back.send(vec![1.0_f32; chunk / 4])?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let given_back = given_back;
            for micro_batch in 0..count as u64 {
                let header = ChunkHeader {
                    epoch: 1,
                    micro_batch,
                    direction: Direction::Forward,
                    rows: chunk / 4,
                    width: 1,
                };
                loop {
                    let heard = bells[0].heard();
                    if a.credit() > 0 {
                        break;
                    }
                    assert!(bells[0].wait(heard, PATIENCE), "no credit came");
                }
                let values = given_back.recv().expect("values come back");
                a.send(Parcel::Chunk(Chunk { header, values }))
                    .expect("there is credit");
            }
        });
        let mut left = count;
        while left > 0 {
            let heard = bells[1].heard();
            match b.receive().expect("the link holds") {
                Some(Parcel::Chunk(chunk)) => {
                    left -= 1;
                    // The sender may have sent its last.
                    let _ = give_back.send(chunk.values);
                }
                Some(Parcel::Word(word)) => panic!("nobody says {}", word.name()),
                None => assert!(bells[1].wait(heard, PATIENCE), "nothing came"),
            }
        }
    });
    Ok(())
}

/// CPU seconds that this process used so far; not moved by what else runs. Nothing where the system does not tell.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
