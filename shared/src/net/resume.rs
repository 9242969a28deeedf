//! A file fetched in as many tries as it takes: what came stays beside until the whole is there and is what was said.
//!
//! - `RS-1` After a fetch the file's name has bytes of the hash that was asked for: a file that is there is hashed, and
//!   others' bytes are taken away.
//! - `RS-2` A try that is cut off leaves what it got, and the next goes on after it; bytes that are not what was said are
//!   taken away, so that the next try begins anew.

use std::io::ErrorKind;
use std::path::Path;

use sha2::{Digest, Sha256};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, ClientError, differs, place, receive_rest};
use crate::hexadecimal::lower as hex;
use crate::units::Bytes;
use crate::wire::request::{FileRef, Reply, Request};

/// Bytes hashed at once.
const PIECE: usize = 1 << 20;

impl Client {
    /// Fetches a file of the backbone into a folder, after what an earlier try left there; nothing is asked for when the
    /// file is there and is what was said.
    ///
    /// # Errors
    /// [`ClientError`]: of the connection, a refusal, [`ClientError::File`] when other bytes came, [`ClientError::Local`]
    /// when the disk takes no more.
    pub async fn fetch_backbone_file(
        &self,
        file: &FileRef,
        folder: &Path,
    ) -> Result<(), ClientError> {
        let place = place(file, folder)?;
        let failed = |error| local(file, folder, error);
        if is_there(file, folder).await? {
            return Ok(());
        }
        match fs::remove_file(&place).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let beside = folder.join(format!(".{}.partial", file.path));
        let (mut output, hash, from) = open(&beside, file.bytes.0).await.map_err(failed)?;
        let request = Request::BackboneFile {
            file: file.clone(),
            from: Bytes(from),
        };
        let mut replies = self.ask(&request).await?;
        match replies.next().await? {
            Some(Reply::File(told)) if told == *file => {}
            _ => return Err(differs(file, "another file was told of".into())),
        }
        let left = file.bytes.0 - from;
        let came = receive_rest(replies.receiver(), file, hash, left, &mut output).await;
        match came {
            Ok(()) => {}
            Err(wrong @ ClientError::File { .. }) => {
                drop(output);
                // The first error is the one to tell.
                let _ = fs::remove_file(&beside).await;
                return Err(wrong);
            }
            Err(ClientError::Local { source, .. }) => return Err(failed(source)),
            Err(cut) => {
                // What came is kept; a disk that refuses is told of at the next try.
                let _ = output.flush().await;
                return Err(cut);
            }
        }
        output.sync_all().await.map_err(failed)?;
        drop(output);
        fs::rename(&beside, &place).await.map_err(failed)?;
        sync(folder).await.map_err(failed)
    }
}

/// Whether a file is in a folder with the size and the hash that were said of it. Reads it whole.
///
/// # Errors
/// [`ClientError::File`] when its name is no plain file name, [`ClientError::Local`] when what is there cannot be read.
pub async fn is_there(file: &FileRef, folder: &Path) -> Result<bool, ClientError> {
    let place = place(file, folder)?;
    let unread = |source| ClientError::Local {
        what: format!("read {}", place.display()),
        source,
    };
    match fs::metadata(&place).await {
        Ok(found) if found.is_file() && found.len() == file.bytes.0 => {}
        Ok(_) => return Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unread(error)),
    }
    let mut held = File::open(&place).await.map_err(unread)?;
    let (hash, read) = hashed(&mut held, file.bytes.0).await.map_err(unread)?;
    Ok(read == file.bytes.0 && hex(&hash.finalize()) == file.sha256)
}

/// What an earlier try left, with its hash and size; nothing when it left too much.
async fn open(beside: &Path, most: u64) -> std::io::Result<(File, Sha256, u64)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(beside).await?;
    let length = file.metadata().await?.len();
    if length > most {
        file.set_len(0).await?;
        return Ok((file, Sha256::new(), 0));
    }
    let (hash, read) = hashed(&mut file, length).await?;
    Ok((file, hash, read))
}

/// The hash over a file from where it stands, and the bytes read: `length`, or fewer when it is shorter.
async fn hashed(file: &mut File, length: u64) -> std::io::Result<(Sha256, u64)> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut read = 0;
    while read < length {
        let now = file.read(&mut piece).await?;
        if now == 0 {
            break;
        }
        hash.update(&piece[..now]);
        read += now as u64;
    }
    Ok((hash, read))
}

async fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder).await?.sync_all().await
}

fn local(file: &FileRef, folder: &Path, source: std::io::Error) -> ClientError {
    let full = matches!(
        source.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    );
    let remedy = if full {
        format!(
            " (of {}): make room there, or give the cluster's state another folder (cluster.state)",
            file.bytes
        )
    } else {
        String::new()
    };
    ClientError::Local {
        what: format!("write {} into {}{remedy}", file.path, folder.display()),
        source,
    }
}
