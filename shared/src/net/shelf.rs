//! Files of the backbone that a member hands to others, a few at once and each no faster than it is told: training
//! between the same machines must not wait for them.

use std::collections::BTreeMap;
use std::io::{Read, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::Semaphore;

use super::fault::{CloseCode, NetError};
use super::stream::Stream;
use crate::hexadecimal::lower as hex;
use crate::units;
use crate::wire::request::{FileRef, Refusal, RefusalCode, Reply};

/// Bytes read and sent at once.
const PIECE: usize = 256 << 10;

/// Files and how they are handed out.
#[derive(Debug)]
pub struct Shelf {
    files: BTreeMap<String, PathBuf>,
    room: Semaphore,
    rate: u64,
}

impl Shelf {
    /// Files by name: at most `at_once` go out at a time, each at no more than `rate` bytes a second, so together at no
    /// more than their product.
    #[must_use]
    pub fn new(
        files: impl IntoIterator<Item = (String, PathBuf)>,
        at_once: usize,
        units::Bytes(rate): units::Bytes,
    ) -> Self {
        Self {
            files: files.into_iter().collect(),
            room: Semaphore::new(at_once),
            rate: rate.max(1),
        }
    }

    /// What each file is, by size and hash. Reads them all: blocks for that.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn references(&self) -> std::io::Result<Vec<FileRef>> {
        let files = self.files.iter();
        files.map(|(name, path)| reference(name, path)).collect()
    }

    /// Answers with a file from an offset on, or says why not. What the file holds, the asker checks.
    ///
    /// # Errors
    /// [`NetError`] of the stream.
    pub async fn serve(
        &self,
        wanted: &FileRef,
        from: units::Bytes,
        stream: &mut Stream,
    ) -> Result<(), NetError> {
        let opened = self.open(wanted, from).await;
        let (mut file, _place) = match opened {
            Ok(opened) => opened,
            Err(refusal) => return stream.sender.send(&Reply::Refused(refusal)).await,
        };
        stream.sender.send(&Reply::File(wanted.clone())).await?;
        let mut left = wanted.bytes.0 - from.0;
        while left > 0 {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            // A file that became shorter, or cannot be read: the asker sees that it is not whole.
            let Ok(read @ 1..) = file.read(&mut piece).await else {
                stream.sender.reset(CloseCode::Internal);
                return Ok(());
            };
            piece.truncate(read);
            left -= read as u64;
            stream.sender.send_raw(Bytes::from(piece)).await?;
            rest(pause(read as u64, self.rate)).await;
        }
        Ok(())
    }

    async fn open(
        &self,
        wanted: &FileRef,
        from: units::Bytes,
    ) -> Result<(File, tokio::sync::SemaphorePermit<'_>), Refusal> {
        let refused = |code, message| Refusal { code, message };
        let absent = |why: String| {
            let message = format!("{} of {} is not here: {why}", wanted.path, wanted.bytes);
            refused(RefusalCode::NotFound, message)
        };
        let path = self.files.get(&wanted.path);
        let path = path.ok_or_else(|| absent("the backbone has no such file here".into()))?;
        let busy = "as many files as may go out at once do: ask again, or another node";
        let place = self
            .room
            .try_acquire()
            .map_err(|_| refused(RefusalCode::Busy, busy.into()))?;
        let mut file = File::open(path)
            .await
            .map_err(|error| absent(error.to_string()))?;
        let metadata = file.metadata().await;
        let length = metadata.map_err(|error| absent(error.to_string()))?.len();
        if length != wanted.bytes.0 {
            return Err(absent(format!("here it has {length} bytes")));
        }
        if from.0 > length {
            let message = format!(
                "{} has {length} bytes, {} were asked for",
                wanted.path, from.0
            );
            return Err(refused(RefusalCode::Invalid, message));
        }
        file.seek(SeekFrom::Start(from.0))
            .await
            .map_err(|error| absent(error.to_string()))?;
        Ok((file, place))
    }
}

fn reference(name: &str, path: &Path) -> std::io::Result<FileRef> {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hash.update(&piece[..read]);
        bytes += read as u64;
    }
    Ok(FileRef {
        path: name.to_owned(),
        sha256: hex(&hash.finalize()),
        bytes: units::Bytes(bytes),
    })
}

/// How long to rest after so many bytes, so that no more than the rate goes out.
fn pause(bytes: u64, rate: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is handed out is slowed down by the clock"
)]
async fn rest(so_long: Duration) {
    tokio::time::sleep(so_long).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_after_a_piece_keeps_to_the_rate() {
        assert_eq!(pause(1 << 20, 1 << 20), Duration::from_secs(1));
        assert_eq!(pause(256 << 10, 64 << 20), Duration::from_micros(3906));
        assert_eq!(pause(1, 0), Duration::from_secs(1));
    }
}
