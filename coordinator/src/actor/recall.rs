//! Events that only the journal has, for a client that asks for the past: read in portions, sent as it takes them.

use shared::ids::{EventNumber, JobId};
use shared::wire::request::Reply;
use tokio::sync::mpsc;

use super::journal::Reader;
use super::messages::ToClient;
use crate::record::Record;

/// Records read at once.
const PORTION: u32 = 500;

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

/// Sends them, and says that nothing follows if that is so.
pub(super) async fn tell(
    reader: Reader,
    wanted: Wanted,
    client: mpsc::Sender<ToClient>,
    last: bool,
) {
    let mut from = wanted.after;
    while from < wanted.until {
        let records = reader.read(from, PORTION).await.unwrap_or_default();
        let Some(newest) = records.last().map(|record| record.number) else {
            break;
        };
        let fits = |record: &&Record| {
            let of_job = wanted.job.is_none() || record.change.job() == wanted.job;
            record.number <= wanted.until && of_job
        };
        let events = records.iter().filter(fits).map(Record::view).collect();
        from = newest;
        let reply = Box::new(Reply::Events(events));
        if client.send(ToClient::Reply(reply, false)).await.is_err() {
            return;
        }
    }
    if last {
        // A client that is gone lost interest.
        let _ = client
            .send(ToClient::Reply(Box::new(Reply::Done), true))
            .await;
    }
}
