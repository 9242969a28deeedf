//! Events that only the journal has, for a client that asks for the past: read in portions, sent as it takes them.

use shared::ids::{EventNumber, JobId};
use shared::wire::request::{RefusalCode, Reply};
use tokio::sync::mpsc;

use super::files::refusal;
use super::journal::Reader;
use super::messages::ToClient;
use crate::record::Record;

/// Records read at once.
pub(super) const PORTION: u32 = 500;

/// Which events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Of this job only.
    pub(super) job: Option<JobId>,
    /// After this one ...
    pub(super) after: EventNumber,
    /// ... up to this one.
    pub(super) until: EventNumber,
}

/// Sends them all; whether the client took them. One that does not get all is told so.
pub(super) async fn tell(reader: Reader, wanted: Wanted, client: &mpsc::Sender<ToClient>) -> bool {
    let mut from = wanted.after;
    while from < wanted.until {
        let Some(records) = reader.read(from, PORTION).await else {
            let message = format!(
                "events behind {from} cannot be read from the journal: ask again, and look into the coordinator's log"
            );
            let refused = Reply::Refused(refusal(RefusalCode::Internal, message));
            // A client that is gone lost interest.
            let _ = client.send(ToClient::Reply(Box::new(refused), true)).await;
            return false;
        };
        let Some(newest) = records.last().map(|record| record.number) else {
            return true;
        };
        let fits = |record: &&Record| {
            let of_job = wanted.job.is_none() || record.change.job() == wanted.job;
            record.number <= wanted.until && of_job
        };
        let events: Vec<_> = records.iter().filter(fits).map(Record::view).collect();
        from = newest;
        let reply = Box::new(Reply::Events(events));
        if client.send(ToClient::Reply(reply, false)).await.is_err() {
            return false;
        }
    }
    true
}
