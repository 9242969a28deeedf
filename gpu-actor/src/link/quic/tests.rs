//! Two ends in one process, over loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use shared::ids::PlanEpoch;
use shared::net::authority::{Authority, MEMBER_LIFE};
use shared::net::endpoint::{Endpoint, EndpointSettings, Peer};
use shared::net::fault::{CloseCode, NetError};
use shared::net::identity::{Identity, Role};
use shared::net::router::{Router, RouterLimits, Service, Stop};
use shared::units::Micros;
use shared::wire::chunk::{ChunkDtype, ChunkHead, ChunkKind, checksum};
use shared::wire::codec::{FrameHead, frame};
use shared::wire::opening::Opening;
use shared::wire::request::Request;
use tokio::runtime::Runtime;

use super::super::{Chunk, ChunkHeader, Direction};
use super::*;

/// Longest that any of these tests waits: only a broken one does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Hands every stream that comes to who waits for it.
struct Taker(mpsc::UnboundedSender<(LinkOpening, Stream)>);

impl Service for Taker {
    async fn request(&self, _: &Peer, _: Request, _: &mut Stream, _: Stop) -> Result<(), NetError> {
        Ok(())
    }

    async fn stream(
        &self,
        _: Peer,
        opening: Opening,
        stream: Stream,
        mut stop: Stop,
    ) -> Result<(), NetError> {
        if let Opening::Link(opening) = opening {
            self.0.send((opening, stream)).unwrap();
        }
        stop.wait().await;
        Ok(())
    }
}

/// Two gpu-actors that know each other.
struct Neighbours {
    runtime: Runtime,
    taken: mpsc::UnboundedReceiver<(LinkOpening, Stream)>,
    peer: Peer,
    _router: Router,
    _first: Endpoint,
}

fn opening(credits: u32) -> LinkOpening {
    LinkOpening {
        epoch: PlanEpoch(3),
        from_replica: 0,
        replica: 0,
        from_stage: 0,
        to_stage: 1,
        credits,
        narrow: false,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "TLS compares certificates with the clock of the system"
)]
fn now() -> Micros {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    Micros(u64::try_from(since.as_micros()).unwrap())
}

impl Neighbours {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cluster = "c".parse().unwrap();
        let authority = Authority::create(&folder.path().join("a.pem"), &cluster, now()).unwrap();
        let member = |name: &str| {
            let identity = Identity {
                cluster: cluster.clone(),
                role: Role::GpuActor,
                name: name.parse().unwrap(),
            };
            authority.issue(&identity, MEMBER_LIFE, now()).unwrap()
        };
        let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let settings = EndpointSettings::at(anywhere);
        let (give, taken) = mpsc::unbounded_channel();
        let (first, router, peer) = runtime.block_on(async {
            let second = Endpoint::open(&settings, &member("n2"), true).unwrap();
            let address = second.address().unwrap();
            let router = Router::start(Arc::new(second), Taker(give), RouterLimits::default());
            let first = Endpoint::open(&settings, &member("n1"), false).unwrap();
            let peer = first.connect(address, Role::GpuActor).await.unwrap();
            (first, router, peer)
        });
        Self {
            runtime,
            taken,
            peer,
            _router: router,
            _first: first,
        }
    }

    /// A stream between them, from both sides.
    fn stream(&mut self, opening: LinkOpening) -> [Stream; 2] {
        self.runtime.block_on(async {
            let ours = self.peer.open(Opening::Link(opening)).await.unwrap();
            let (heard, theirs) = self.taken.recv().await.unwrap();
            assert_eq!(heard, opening);
            [ours, theirs]
        })
    }

    fn end(&self, stream: Stream, opening: LinkOpening) -> (QuicLink, Bell) {
        let bell = Bell::default();
        let (link, carrier) = over(stream, opening, bell.clone(), Transits::default());
        self.runtime.spawn(carrier);
        (link, bell)
    }

    fn pair(&mut self, opening: LinkOpening) -> [(QuicLink, Bell); 2] {
        self.stream(opening).map(|stream| self.end(stream, opening))
    }

    /// One end, and the bare stream of another who does not keep to the rules.
    fn against(&mut self, credits: u32) -> (QuicLink, Bell, Stream) {
        let [bare, ours] = self.stream(opening(credits));
        let (link, bell) = self.end(ours, opening(credits));
        (link, bell, bare)
    }
}

fn chunk(micro_batch: u64, values: Vec<f32>) -> Chunk {
    let header = ChunkHeader {
        epoch: 3,
        micro_batch,
        direction: Direction::Forward,
        rows: values.len(),
        width: 1,
    };
    Chunk { header, values }
}

fn said(number: u64, problem: String) -> Word {
    let slot = usize::try_from(number).unwrap();
    Word::Refused { slot, problem }
}

/// Tries at each ring until it gives something.
fn until<T>(bell: &Bell, mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        let heard = bell.heard();
        if let Some(found) = attempt() {
            return found;
        }
        assert!(bell.wait(heard, PATIENCE), "nothing came");
    }
}

fn next(link: &mut QuicLink, bell: &Bell) -> Result<Parcel, LinkError> {
    until(bell, || link.receive().transpose())
}

fn failure(link: &mut QuicLink, bell: &Bell) -> String {
    match next(link, bell) {
        Err(LinkError::Failed { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// Sends what its number says, takes what the other's says, in whatever order there is credit.
fn exchange(mut link: QuicLink, bell: &Bell, count: u64) {
    let parcel = |number: u64| match number % 3 {
        0 => Parcel::Word(said(
            number,
            "x".repeat(usize::try_from(number * 7 % 5000).unwrap()),
        )),
        _ => {
            let length = usize::try_from(number * 6151 % 120_000).unwrap();
            let value = |index: usize| f32::from_bits(index as u32 ^ number as u32);
            Parcel::Chunk(chunk(number, (0..length).map(value).collect()))
        }
    };
    let bits = |parcel: &Parcel| match parcel {
        Parcel::Chunk(chunk) => chunk.values.iter().map(|value| value.to_bits()).collect(),
        Parcel::Word(_) => Vec::new(),
    };
    let (mut sent, mut taken) = (0, 0);
    while sent < count || taken < count {
        let heard = bell.heard();
        let mut moved = false;
        if sent < count {
            match link.send(parcel(sent)) {
                Ok(()) => (sent, moved) = (sent + 1, true),
                Err(LinkError::NoCredit { credits: 2 }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // Whoever has taken all may close before this side looks again.
        if taken < count
            && let Some(came) = link.receive().unwrap()
        {
            let due = parcel(taken);
            assert_eq!(bits(&came), bits(&due), "parcel {taken}");
            if let (Parcel::Chunk(came), Parcel::Chunk(due)) = (&came, &due) {
                assert_eq!(came.header, due.header);
            }
            (taken, moved) = (taken + 1, true);
        }
        assert!(
            moved || bell.wait(heard, PATIENCE),
            "{sent} sent, {taken} taken, then silence"
        );
    }
    link.close();
    // What the other side still sends are credits; its end comes after them.
    assert!(matches!(next(&mut link, bell), Err(LinkError::Closed)));
}

#[test]
fn both_directions_full_at_once_keep_order_and_bits() {
    let mut neighbours = Neighbours::new();
    let [(a, bell_a), (b, bell_b)] = neighbours.pair(opening(2));
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(a, &bell_a, 90));
        scope.spawn(|| exchange(b, &bell_b, 90));
    });
}

#[test]
fn credits_hold_under_a_reader_that_takes_nothing() {
    let mut neighbours = Neighbours::new();
    let [(mut a, bell_a), (mut b, bell_b)] = neighbours.pair(opening(3));
    for number in 0..3 {
        a.send(Parcel::Chunk(chunk(number, vec![1.0; 100_000])))
            .unwrap();
    }
    let fourth = || Parcel::Chunk(chunk(3, vec![2.0]));
    assert_eq!(a.send(fourth()), Err(LinkError::NoCredit { credits: 3 }));
    // Words pass, behind what was sent before.
    a.send(Parcel::Word(said(1, "go".into()))).unwrap();
    assert!(
        matches!(next(&mut b, &bell_b), Ok(Parcel::Chunk(first)) if first.header.micro_batch == 0)
    );
    until(&bell_a, || (a.credit() == 1).then_some(()));
    a.send(fourth()).unwrap();
    for number in 1..3 {
        assert!(
            matches!(next(&mut b, &bell_b), Ok(Parcel::Chunk(c)) if c.header.micro_batch == number)
        );
    }
    assert_eq!(
        next(&mut b, &bell_b),
        Ok(Parcel::Word(said(1, "go".into())))
    );
    assert_eq!(next(&mut b, &bell_b), Ok(fourth()));
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    let mut neighbours = Neighbours::new();
    let [(mut a, bell_a), (mut b, bell_b)] = neighbours.pair(opening(2));
    a.send(Parcel::Chunk(chunk(0, vec![1.5; 300_000]))).unwrap();
    a.send(Parcel::Word(said(1, "end".into()))).unwrap();
    drop(a);
    assert!(matches!(next(&mut b, &bell_b), Ok(Parcel::Chunk(c)) if c.values[299_999] == 1.5));
    assert_eq!(
        next(&mut b, &bell_b),
        Ok(Parcel::Word(said(1, "end".into())))
    );
    assert_eq!(next(&mut b, &bell_b), Err(LinkError::Closed));
    let refused = until(&bell_b, || {
        b.send(Parcel::Word(said(2, String::new()))).err()
    });
    assert_eq!(refused, LinkError::Closed);
    drop(bell_a);
}

#[test]
fn a_narrow_link_rounds_to_bf16() {
    let mut neighbours = Neighbours::new();
    let narrow = LinkOpening {
        narrow: true,
        ..opening(1)
    };
    let [(mut a, _), (mut b, bell_b)] = neighbours.pair(narrow);
    let third = 1.0 / 3.0;
    a.send(Parcel::Chunk(chunk(0, vec![1.0, third]))).unwrap();
    let rounded = half::bf16::from_f32(third).to_f32();
    assert_eq!(
        next(&mut b, &bell_b),
        Ok(Parcel::Chunk(chunk(0, vec![1.0, rounded])))
    );
}

/// A chunk's frame as bytes, with a hand in it.
fn raw(micro_batch: u64, change: impl FnOnce(&mut ChunkHead, &mut Vec<u8>)) -> Bytes {
    let mut payload = bytemuck::cast_slice(&[1.0_f32; 6]).to_vec();
    let mut head = ChunkHead {
        epoch: PlanEpoch(3),
        micro_batch,
        kind: ChunkKind::Forward,
        dtype: ChunkDtype::F32,
        rows: 2,
        width: 3,
        checksum: checksum(&payload),
    };
    change(&mut head, &mut payload);
    let outer = FrameHead {
        kind: FrameKind::Chunk,
        bytes: CHUNK_HEAD + payload.len(),
    };
    let outer = outer.encode(&Limits::default()).unwrap();
    [&outer[..], &head.encode(), &payload].concat().into()
}

#[test]
fn what_is_damaged_or_not_agreed_ends_the_link_and_nothing_else() {
    let mut neighbours = Neighbours::new();
    let limits = Limits::default();
    let credit = FrameHead {
        kind: FrameKind::Credit,
        bytes: 4,
    };
    let credit = credit.encode(&limits).unwrap();
    let cases: [(Bytes, &str); 7] = [
        (raw(0, |_, payload| payload[5] ^= 1), "damaged"),
        (raw(0, |head, _| head.epoch = PlanEpoch(2)), "plan e2"),
        (raw(0, |head, _| head.rows = 3), "its head tells of"),
        (raw(0, |head, _| head.dtype = ChunkDtype::Bf16), "as Bf16"),
        (
            [&credit[..], &[1, 0, 0, 0]].concat().into(),
            "took more chunks",
        ),
        (
            frame(&Request::Status, &limits).unwrap().into(),
            "a request came",
        ),
        (Bytes::from_static(b"GET / HTTP/1.1"), "kind"),
    ];
    for (bytes, told) in cases {
        let (mut link, bell, mut bare) = neighbours.against(2);
        let good = raw(7, |_, _| {});
        neighbours.runtime.block_on(async {
            bare.sender.send_raw(good).await.unwrap();
            bare.sender.send_raw(bytes).await.unwrap();
        });
        assert!(
            matches!(next(&mut link, &bell), Ok(Parcel::Chunk(_))),
            "{told}"
        );
        let reason = failure(&mut link, &bell);
        assert!(reason.contains(told), "{reason:?} does not tell {told:?}");
        let refused = link.send(Parcel::Word(said(0, String::new()))).unwrap_err();
        assert!(matches!(refused, LinkError::Failed { .. }));
    }
    // The connection carried all of these, and carries more.
    let [(mut a, _), (mut b, bell_b)] = neighbours.pair(opening(1));
    a.send(Parcel::Word(said(4, "still".into()))).unwrap();
    assert_eq!(
        next(&mut b, &bell_b),
        Ok(Parcel::Word(said(4, "still".into())))
    );
}

#[test]
fn more_chunks_than_credits_and_half_a_chunk_are_found() {
    let mut neighbours = Neighbours::new();
    let (mut link, bell, mut bare) = neighbours.against(2);
    neighbours.runtime.block_on(async {
        for number in 0..3 {
            bare.sender.send_raw(raw(number, |_, _| {})).await.unwrap();
        }
    });
    until(&bell, || {
        let end = link.shared.inbox.outward_end();
        matches!(end, Some(LinkError::Failed { .. })).then_some(())
    });
    for _ in 0..3 {
        assert!(next(&mut link, &bell).is_ok());
    }
    assert!(failure(&mut link, &bell).contains("sent more chunks than the 2"));

    let (mut link, bell, mut bare) = neighbours.against(2);
    let half = raw(0, |_, _| {}).slice(..60);
    neighbours
        .runtime
        .block_on(bare.sender.send_raw(half))
        .unwrap();
    bare.sender.finish();
    assert!(failure(&mut link, &bell).contains("ended where a chunk was due"));
}

#[test]
fn a_lost_connection_is_told_with_its_reason() {
    let mut neighbours = Neighbours::new();
    let [(a, _bell), (mut b, bell_b)] = neighbours.pair(opening(1));
    neighbours.peer.close(CloseCode::Stale, "the plan is over");
    assert!(failure(&mut b, &bell_b).contains("the plan is over"));
    drop(a);
}

#[test]
fn a_chunk_over_the_limit_is_refused_before_it_goes() {
    let mut neighbours = Neighbours::new();
    let [(mut a, _bell), _other] = neighbours.pair(opening(1));
    a.limits.chunk_bytes = 100;
    let refused = a.send(Parcel::Chunk(chunk(0, vec![0.0; 14]))).unwrap_err();
    assert!(
        refused.to_string().contains("plan.tokens_per_pass"),
        "{refused}"
    );
    assert_eq!(a.credit(), 1);
    assert!(a.send(Parcel::Chunk(chunk(0, vec![0.0; 13]))).is_ok());
}
