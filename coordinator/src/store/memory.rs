//! A journal in memory, for tests and simulations: its clock is turned by hand.

use shared::ids::{EventNumber, Term};
use shared::units::Micros;

use super::{Journal, JournalError, Lease, Loaded, Seen};
use crate::book::{Book, Gap};
use crate::record::Record;

/// The journal.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    records: Vec<Record>,
    snapshot: Option<Book>,
    lease: Option<(Lease, Micros)>,
    term: Term,
    now: Micros,
}

impl Memory {
    /// Turns its clock; never back.
    pub fn set_clock(&mut self, now: Micros) {
        self.now = self.now.max(now);
    }

    /// All records.
    #[must_use]
    pub fn all(&self) -> &[Record] {
        &self.records
    }

    /// What a disk would hold had the machine died after so many records.
    #[must_use]
    pub fn cut(&self, records: usize) -> Self {
        let last = EventNumber(records as u64);
        Self {
            records: self.records[..records].to_vec(),
            snapshot: self.snapshot.clone().filter(|book| book.last <= last),
            lease: None,
            ..self.clone()
        }
    }

    /// ST-1.
    fn fence(&self, lease: &Lease) -> Result<(), JournalError> {
        match &self.lease {
            Some((held, _)) if held == lease => Ok(()),
            _ => Err(JournalError::Deposed { term: lease.term }),
        }
    }

    /// A new leadership.
    fn begin(&mut self, owner: &str, lasts: Micros) -> Lease {
        self.term = self.term.next();
        let lease = Lease {
            owner: owner.into(),
            term: self.term,
        };
        self.lease = Some((lease.clone(), self.now.plus(lasts)));
        lease
    }
}

impl Journal for Memory {
    fn led(&mut self) -> Result<Option<Seen>, JournalError> {
        let led = self.lease.as_ref().map(|(held, expires)| Seen {
            owner: held.owner.clone(),
            term: held.term,
            expires: *expires,
            left: expires.since(self.now),
        });
        Ok(led)
    }

    fn take_over(
        &mut self,
        owner: &str,
        lasts: Micros,
        seen: &Seen,
    ) -> Result<Lease, JournalError> {
        match self.led()? {
            Some(led) if (led.term, led.expires) != (seen.term, seen.expires) => {
                Err(JournalError::Led {
                    owner: led.owner,
                    term: led.term,
                    left: led.left,
                })
            }
            _ => Ok(self.begin(owner, lasts)),
        }
    }

    fn take_lease(&mut self, owner: &str, lasts: Micros) -> Result<Lease, JournalError> {
        if let Some((held, expires)) = self.lease.as_ref().filter(|(_, e)| self.now < *e) {
            return Err(JournalError::Led {
                owner: held.owner.clone(),
                term: held.term,
                left: expires.since(self.now),
            });
        }
        Ok(self.begin(owner, lasts))
    }

    fn renew(&mut self, lease: &Lease, lasts: Micros) -> Result<(), JournalError> {
        self.fence(lease)?;
        self.lease = Some((lease.clone(), self.now.plus(lasts)));
        Ok(())
    }

    fn give_back(&mut self, lease: &Lease) -> Result<(), JournalError> {
        self.fence(lease)?;
        self.lease = None;
        Ok(())
    }

    fn append(&mut self, lease: &Lease, records: &[Record]) -> Result<(), JournalError> {
        self.fence(lease)?;
        let mut last = EventNumber(self.records.len() as u64);
        for record in records {
            if record.number != last.next() {
                let found = record.number;
                return Err(Gap { last, found }.into());
            }
            last = record.number;
        }
        self.records.extend_from_slice(records);
        Ok(())
    }

    /// Keeps all records.
    fn snapshot(&mut self, lease: &Lease, book: &Book, _: u64) -> Result<(), JournalError> {
        self.fence(lease)?;
        self.snapshot = Some(book.clone());
        Ok(())
    }

    fn load(&mut self) -> Result<Loaded, JournalError> {
        let snapshot = self.snapshot.clone();
        let last = snapshot.as_ref().map_or(EventNumber(0), |book| book.last);
        let records = self.records[last.0 as usize..].to_vec();
        Ok(Loaded { snapshot, records })
    }

    fn records(&mut self, after: EventNumber, most: u32) -> Result<Vec<Record>, JournalError> {
        let after = self.records.iter().skip(after.0 as usize);
        Ok(after.take(most as usize).cloned().collect())
    }
}
