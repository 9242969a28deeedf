//! A road between two nodes that loses datagrams and is slow, on any machine: whoever is reached through it is reached
//! late, or not at all.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shared::random::{Domain, Stream};

/// How often a thread looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);
/// Largest datagram.
const LARGEST: usize = 65_536;

/// A datagram on its way.
struct Letter {
    due: Instant,
    socket: Arc<UdpSocket>,
    /// None: whom the socket is connected to.
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
}

/// What the road does to datagrams.
struct Road {
    dice: Stream,
    /// Of a hundred, so many are lost.
    lost_of_hundred: u64,
    delay: Duration,
    carried: AtomicU32,
    lost: AtomicU32,
    /// Nothing arrives.
    cut: AtomicBool,
    over: AtomicBool,
}

impl Road {
    fn take(
        &self,
        post: &Sender<Letter>,
        socket: &Arc<UdpSocket>,
        to: Option<SocketAddr>,
        bytes: &[u8],
    ) {
        let number = self.carried.fetch_add(1, Ordering::Relaxed);
        let cut = self.cut.load(Ordering::Relaxed);
        if cut || self.dice.below(number, 100) < self.lost_of_hundred {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let due = Instant::now() + self.delay;
        // The one who delivers ends last.
        let _ = post.send(Letter {
            due,
            socket: Arc::clone(socket),
            to,
            bytes: bytes.to_vec(),
        });
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The road, open until it is dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    road: Arc<Road>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// To a node, both ways.
    pub(crate) fn to(node: SocketAddr, lost_of_hundred: u64, delay: Duration) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = front.local_addr().unwrap();
        let road = Arc::new(Road {
            dice: Stream::new(11, Domain::Sample, [0; 3]),
            lost_of_hundred,
            delay,
            carried: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            cut: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let thread = {
            let road = Arc::clone(&road);
            thread::spawn(move || carry(&road, &front, node))
        };
        Self {
            address,
            road,
            thread: Some(thread),
        }
    }

    /// From now on nothing arrives, or everything does again but what is lost.
    pub(crate) fn cut(&self, cut: bool) {
        self.road.cut.store(cut, Ordering::Relaxed);
    }

    /// Datagrams that came, and of them those that were lost.
    pub(crate) fn seen(&self) -> (u32, u32) {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        (of(&self.road.carried), of(&self.road.lost))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.road.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// All letters take equally long, so they arrive in the order in which they were sent.
fn deliver(letters: &mpsc::Receiver<Letter>) {
    for letter in letters {
        thread::sleep(letter.due.saturating_duration_since(Instant::now()));
        // Who is gone gets nothing, as on any road.
        let _ = match letter.to {
            Some(to) => letter.socket.send_to(&letter.bytes, to),
            None => letter.socket.send(&letter.bytes),
        };
    }
}

fn carry(road: &Road, front: &Arc<UdpSocket>, node: SocketAddr) {
    front.set_read_timeout(Some(LOOK)).unwrap();
    let (post, letters) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || deliver(&letters));
        // Each caller has a socket of its own towards the node, by which answers find back.
        let mut backs: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
        let mut buffer = vec![0; LARGEST];
        while !road.is_over() {
            let Ok((bytes, caller)) = front.recv_from(&mut buffer) else {
                continue;
            };
            let back = backs.entry(caller).or_insert_with(|| {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                back.connect(node).unwrap();
                back.set_read_timeout(Some(LOOK)).unwrap();
                let (back_in, post) = (Arc::clone(&back), post.clone());
                scope.spawn(move || {
                    let mut buffer = vec![0; LARGEST];
                    while !road.is_over() {
                        if let Ok(bytes) = back_in.recv(&mut buffer) {
                            road.take(&post, front, Some(caller), &buffer[..bytes]);
                        }
                    }
                });
                back
            });
            road.take(&post, back, None, &buffer[..bytes]);
        }
        drop(post);
    });
}
