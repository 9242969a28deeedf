//! A station's dealings with the same stage of other replicas: what each has of a step that they share goes to all
//! others, and every one joins the same sums to the same bits.

use std::collections::{BTreeMap, VecDeque};

use self::coming::Coming;
use super::super::error::{Lacking, ReplicaError, Side};
use super::super::gathering::{Contribution, Gathering};
use super::super::tenant::Tenant;
use super::{Station, Told};
use crate::link::word::{Shard, Sums, Word};
use crate::link::{Chunk, ChunkHeader, ChunkLink, Direction, LinkError, Parcel};
use crate::pipeline::Slot;
use crate::pipeline::council::Matter;
use crate::stage::partial::Partial;
use crate::train::tally::Tally;
use shared::ids::JobName;

mod coming;

/// Most values of a chunk: a MiB.
const MOST_VALUES: usize = 1 << 18;

/// The same stage of another replica.
struct Peer {
    link: Option<Box<dyn ChunkLink>>,
    /// Chunks that wait for credit.
    outbox: VecDeque<Chunk>,
    coming: VecDeque<Coming>,
    /// Chunks made for it, and taken from it.
    made: u64,
    taken: u64,
    /// It said that nothing will follow.
    left: bool,
}

/// All of them, and the steps that are not joined.
pub(super) struct Across {
    peers: BTreeMap<u32, Peer>,
    gathering: Gathering,
}

impl Across {
    pub(super) fn new(links: BTreeMap<u32, Box<dyn ChunkLink>>) -> Self {
        let peer = |(replica, link)| {
            let peer = Peer {
                link: Some(link),
                outbox: VecDeque::new(),
                coming: VecDeque::new(),
                made: 0,
                taken: 0,
                left: false,
            };
            (replica, peer)
        };
        Self {
            peers: links.into_iter().map(peer).collect(),
            gathering: Gathering::default(),
        }
    }

    /// Whether nothing waits for credit.
    pub(super) fn is_sent(&self) -> bool {
        self.peers.values().all(|peer| peer.outbox.is_empty())
    }

    pub(super) fn close(&mut self) {
        let links = self.peers.values_mut();
        for link in links.filter_map(|peer| peer.link.as_mut()) {
            link.close();
        }
    }

    pub(super) fn forget(&mut self, job: &JobName) {
        self.gathering.forget(job);
    }
}

impl Station {
    /// Whether another replica is linked.
    pub(in super::super) fn reaches(&self, replica: u32) -> bool {
        let peer = self.across.peers.get(&replica);
        peer.is_some_and(|peer| !peer.left && peer.link.is_some())
    }

    /// Sends a word to the same stage of another replica.
    pub(in super::super) fn call(&mut self, replica: u32, word: Word) -> Result<(), ReplicaError> {
        let peer = self.across.peers.get_mut(&replica);
        let link = peer
            .filter(|peer| !peer.left)
            .and_then(|peer| peer.link.as_mut());
        let sent = link.ok_or(LinkError::Closed);
        let sent = sent.and_then(|link| link.send(Parcel::Word(word)));
        sent.map_err(|source| self.lost_peer(replica, source))
    }

    pub(in super::super) fn lost_peer(&self, replica: u32, source: LinkError) -> ReplicaError {
        ReplicaError::Link {
            stage: self.seat.place.stage,
            side: Side::Across(replica),
            source,
        }
    }

    /// The own rows of a shared step have come back: what they gave goes to all replicas that share it.
    pub(super) fn give(&mut self, matter: Matter, shard: Shard) -> Result<(), ReplicaError> {
        let (slot, step) = matter;
        let Some(tenant) = self.tenants.get(&slot) else {
            return self.report(matter);
        };
        let (aside, job, replicas) = (tenant.aside, tenant.job.clone(), tenant.replicas.clone());
        let mut own = Contribution {
            partials: self.stage.take_partials(slot),
            losses: self
                .tallies
                .get_mut(&matter)
                .map(Tally::take_partials)
                .unwrap_or_default(),
        };
        // All replicas set a job aside at the same step.
        if aside {
            return self.report(matter);
        }
        if shard.idle {
            own = Contribution::default();
        }
        let here = self.seat.replica;
        for replica in replicas.into_iter().filter(|replica| *replica != here) {
            let sums = Sums {
                job: job.clone(),
                step,
                heads: own.partials.iter().map(|partial| partial.head).collect(),
                losses: own.losses.clone(),
            };
            self.call(replica, Word::Sums(Box::new(sums)))?;
            self.put_out(replica, &own.partials);
        }
        self.across.gathering.add((job, step), here, own);
        self.join(matter)
    }

    /// Puts the values of sums in the outbox of a peer.
    fn put_out(&mut self, replica: u32, partials: &[Partial]) {
        let epoch = self.seat.epoch;
        let Some(peer) = self.across.peers.get_mut(&replica) else {
            return;
        };
        let lists = partials.iter().map(|partial| &partial.values[..]);
        let values: Vec<f32> = lists.collect::<Vec<_>>().concat();
        for piece in values.chunks(MOST_VALUES) {
            let header = header(epoch, peer.made, piece.len());
            let values = piece.to_vec();
            peer.made += 1;
            peer.outbox.push_back(Chunk { header, values });
        }
    }

    /// Finishes a step's gradient once all replicas gave what they have.
    fn join(&mut self, matter: Matter) -> Result<(), ReplicaError> {
        let (slot, step) = matter;
        let shard = self.goals.get(&matter).and_then(|goal| goal.shard);
        let (Some(tenant), Some(shard)) = (self.tenants.get(&slot), shard) else {
            return Ok(());
        };
        let key = (tenant.job.clone(), step);
        let Some(all) = self.across.gathering.take(&key, &tenant.replicas) else {
            return Ok(());
        };
        let mut partials = Vec::new();
        let mut fits = true;
        for given in all {
            partials.extend(given.partials);
            if let Some(tally) = self.tallies.get_mut(&matter) {
                fits &= tally.join(given.losses);
            }
        }
        if let Some(tally) = self.tallies.get_mut(&matter) {
            fits &= tally.close(shard.blocks);
        }
        fits &= self.stage.join_partials(slot, partials, shard.blocks);
        if !fits {
            return Err(self.misfit("sums", "they do not make up the step"));
        }
        self.report(matter)
    }

    /// Sends chunks to peers that have credit.
    pub(super) fn flush_across(&mut self) -> Result<bool, ReplicaError> {
        let (mut moved, mut lost) = (false, None);
        for (replica, peer) in &mut self.across.peers {
            while let Some(link) = &mut peer.link
                && link.credit() > 0
                && let Some(chunk) = peer.outbox.pop_front()
            {
                moved = true;
                if let Err(source) = link.send(Parcel::Chunk(chunk)) {
                    lost = Some((*replica, source));
                    break;
                }
            }
        }
        match lost {
            Some((replica, source)) => Err(self.lost_peer(replica, source)),
            None => Ok(moved),
        }
    }

    /// Takes what came from peers.
    pub(super) fn receive_across(&mut self) -> Result<bool, ReplicaError> {
        let (mut came, mut lost) = (Vec::new(), None);
        for (replica, peer) in &mut self.across.peers {
            while let Some(link) = &mut peer.link {
                match link.receive() {
                    Ok(Some(parcel)) => {
                        peer.left |= parcel == Parcel::Word(Word::Close);
                        came.push((*replica, parcel));
                    }
                    Ok(None) => break,
                    Err(_) if self.closed || peer.left => peer.link = None,
                    Err(source) => {
                        lost = Some((*replica, source));
                        break;
                    }
                }
            }
        }
        let moved = !came.is_empty();
        for (replica, parcel) in came {
            match parcel {
                Parcel::Chunk(chunk) => self.take_across(replica, chunk)?,
                Parcel::Word(word) => self.hear_across(replica, word)?,
            }
        }
        match lost {
            Some((replica, source)) => Err(self.lost_peer(replica, source)),
            None => Ok(moved),
        }
    }

    fn take_across(&mut self, replica: u32, chunk: Chunk) -> Result<(), ReplicaError> {
        let (stage, epoch) = (self.seat.place.stage, self.seat.epoch);
        let expected = self.across.peers.get_mut(&replica).and_then(|peer| {
            let header = header(epoch, peer.taken, chunk.values.len());
            let coming = peer.coming.front_mut()?;
            let room = coming.wanted() - coming.taken;
            (header == chunk.header && chunk.values.len() <= room).then(|| {
                peer.taken += 1;
                coming.taken += chunk.values.len();
                if coming.kept {
                    coming.values.extend(&chunk.values);
                }
            })
        });
        let header = chunk.header;
        expected.ok_or(ReplicaError::Chunk { stage, header })?;
        self.take_whole(replica)
    }

    fn hear_across(&mut self, replica: u32, word: Word) -> Result<(), ReplicaError> {
        let first = self.seat.place.stage == 0;
        match word {
            Word::Sums(sums) => {
                let kept = self.expects(replica, &sums)?;
                if let Some(peer) = self.across.peers.get_mut(&replica) {
                    peer.coming.push_back(Coming {
                        sums: *sums,
                        taken: 0,
                        kept,
                        values: Vec::new(),
                    });
                }
                self.take_whole(replica)
            }
            Word::Close => {
                if self.lacks_sums().any(|lacks| lacks.2 == replica) {
                    return Err(self.lost_peer(replica, LinkError::Closed));
                }
                if first {
                    self.told.push_back(Told::Across(replica, Word::Close));
                }
                Ok(())
            }
            Word::Enlist(_)
            | Word::Enlisted { .. }
            | Word::Assist(_)
            | Word::Found { .. }
            | Word::Dismiss { .. }
                if first =>
            {
                self.told.push_back(Told::Across(replica, word));
                Ok(())
            }
            word => Err(self.misfit(word.name(), "it came from another replica")),
        }
    }

    /// Looks at sums before their values come; whether the job is here. Of one that is gone nothing is kept.
    fn expects(&self, replica: u32, sums: &Sums) -> Result<bool, ReplicaError> {
        let Some((slot, tenant)) = self.sharer(replica, &sums.job) else {
            return Ok(false);
        };
        // A replica takes a step when it has the sums of all, so it can be one ahead of another and no more.
        let taken = tenant.optimizer.step;
        if sums.step != taken && sums.step != taken + 1 {
            return Err(self.misfit("sums", "they are of another step"));
        }
        if !self.stage.may_hold(slot, &sums.heads) {
            return Err(self.misfit("sums", "larger than the job"));
        }
        Ok(true)
    }

    /// The job of this name whose steps a replica shares.
    fn sharer(&self, replica: u32, job: &JobName) -> Option<(Slot, &Tenant)> {
        let shares = |tenant: &Tenant| tenant.job == *job && tenant.replicas.contains(&replica);
        let mut tenants = self.tenants.iter();
        let (slot, tenant) = tenants.find(|(_, tenant)| shares(tenant))?;
        Some((*slot, tenant))
    }

    /// Takes the sums of a peer whose values are all here.
    fn take_whole(&mut self, replica: u32) -> Result<(), ReplicaError> {
        loop {
            let Some(peer) = self.across.peers.get_mut(&replica) else {
                return Ok(());
            };
            let whole = |coming: &Coming| coming.taken == coming.wanted();
            if !peer.coming.front().is_some_and(whole) {
                return Ok(());
            }
            let Some(coming) = peer.coming.pop_front() else {
                return Ok(());
            };
            let Some((slot, _)) = self
                .sharer(replica, &coming.sums.job)
                .filter(|_| coming.kept)
            else {
                continue;
            };
            let (key, given) = coming.contribution();
            let matter = (slot, key.1);
            if !self.across.gathering.add(key, replica, given) {
                return Err(self.misfit("sums", "they came twice"));
            }
            self.join(matter)?;
        }
    }

    /// Steps whose own sums are given, each with a replica whose sums are missing.
    fn lacks_sums(&self) -> impl Iterator<Item = (String, u64, u32)> + '_ {
        self.pipeline.complete().flat_map(move |(slot, step)| {
            let tenant = self.tenants.get(&slot);
            let replicas = tenant.map_or(&[][..], |tenant| &tenant.replicas);
            let key = tenant.map(|tenant| (tenant.job.clone(), step));
            let missing = replicas.iter().filter_map(move |replica| {
                let (key, gathering) = (key.as_ref()?, &self.across.gathering);
                let waits = gathering.has(key, self.seat.replica) && !gathering.has(key, *replica);
                waits.then(|| (key.0.to_string(), step, *replica))
            });
            missing.collect::<Vec<_>>()
        })
    }

    /// The same, as a sentence.
    pub(super) fn lacking_sums(&self) -> Option<Lacking> {
        let (job, step, replica) = self.lacks_sums().next()?;
        Some(Lacking::Sums(job, step, replica))
    }

    /// Tells peers that nothing will follow; one that is gone need not be told.
    pub(super) fn take_leave(&mut self) {
        for peer in self.across.peers.values_mut().filter(|peer| !peer.left) {
            if let Some(link) = &mut peer.link {
                let _ = link.send(Parcel::Word(Word::Close));
            }
        }
    }
}

/// Chunks between replicas are numbered through by link.
fn header(epoch: u64, number: u64, values: usize) -> ChunkHeader {
    ChunkHeader {
        epoch,
        micro_batch: number,
        direction: Direction::Backward,
        rows: values,
        width: 1,
    }
}
