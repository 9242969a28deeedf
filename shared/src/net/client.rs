//! The client of a coordinator: requests and replies, files up and down.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::backoff::Backoff;
use super::endpoint::{Endpoint, Peer};
use super::fault::{CloseCode, NetError};
use super::identity::Role;
use super::plain_name;
use super::stream::{Receiver, Stream};
use crate::hexadecimal::lower as hex;
use crate::units;
use crate::wire::opening::Opening;
use crate::wire::request::{FileRef, Refusal, Reply, Request};

/// Bytes of a file held at once.
const PIECE: usize = 256 << 10;

/// Says why a request came to nothing.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The connection.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The coordinator refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A reply that does not answer the request.
    #[error("the coordinator answered a {request} with a {reply}: is it of another version?")]
    Unfitting {
        /// What was asked.
        request: &'static str,
        /// What came.
        reply: String,
    },
    /// A file that is not what was said of it.
    #[error("{path} is not what was said of it: {what}")]
    File {
        /// The file.
        path: String,
        /// What differs.
        what: String,
    },
    /// The system refuses.
    #[error("cannot {what}: {source}")]
    Local {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// A connection to the coordinator.
#[derive(Clone, Debug)]
pub struct Client {
    peer: Peer,
}

/// Replies to one request, as they come.
#[derive(Debug)]
pub struct Replies {
    stream: Stream,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn connect(endpoint: &Endpoint, address: SocketAddr) -> Result<Self, NetError> {
        let peer = endpoint.connect(address, Role::Coordinator).await?;
        Ok(Self { peer })
    }

    /// Over a connection that stands.
    #[must_use]
    pub fn over(peer: Peer) -> Self {
        Self { peer }
    }

    /// Connects, and tries again while that may help, for so long in all.
    ///
    /// # Errors
    /// [`NetError`]: the last one.
    pub async fn connect_within(
        endpoint: &Arc<Endpoint>,
        address: SocketAddr,
        patience: Duration,
        backoff: Backoff,
    ) -> Result<Self, NetError> {
        let peer = backoff
            .retry(patience, || endpoint.connect(address, Role::Coordinator))
            .await?;
        Ok(Self { peer })
    }

    /// The coordinator.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Asks, and reads replies one by one.
    ///
    /// # Errors
    /// [`ClientError::Net`].
    pub async fn ask(&self, request: &Request) -> Result<Replies, ClientError> {
        let mut stream = self.peer.open(Opening::Request).await?;
        stream.sender.send(request).await?;
        // Only an upload has more to say.
        if !matches!(request, Request::PutFile(_)) {
            stream.sender.finish();
        }
        Ok(Replies { stream })
    }

    /// Asks what has one reply.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal is one.
    pub async fn request(&self, request: &Request) -> Result<Reply, ClientError> {
        self.ask(request).await?.one().await
    }

    /// Sends a file, which must be what its reference says.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn upload(&self, reference: &FileRef, path: &Path) -> Result<(), ClientError> {
        let mut file = File::open(path)
            .await
            .map_err(|source| ClientError::Local {
                what: format!("open {}", path.display()),
                source,
            })?;
        let mut replies = self.ask(&Request::PutFile(reference.clone())).await?;
        let mut left = reference.bytes.0;
        let mut hash = Sha256::new();
        while left > 0 {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            let read = file
                .read(&mut piece)
                .await
                .map_err(|source| ClientError::Local {
                    what: format!("read {}", path.display()),
                    source,
                })?;
            if read == 0 {
                replies.stream.sender.reset(CloseCode::Malformed);
                return Err(differs(
                    reference,
                    format!("{left} bytes less than its size"),
                ));
            }
            piece.truncate(read);
            hash.update(&piece);
            left -= read as u64;
            if let Err(error) = replies.stream.sender.send_raw(Bytes::from(piece)).await {
                // A refusal may have come meanwhile: it says more.
                return match replies.one().await {
                    Err(ClientError::Refused(refusal)) => Err(refusal.into()),
                    _ => Err(error.into()),
                };
            }
        }
        let made = hex(&hash.finalize());
        if made != reference.sha256 {
            replies.stream.sender.reset(CloseCode::Malformed);
            return Err(differs(
                reference,
                format!("its sha256 is {made}, not {}", reference.sha256),
            ));
        }
        replies.stream.sender.finish();
        match replies.one().await? {
            Reply::Done => Ok(()),
            other => Err(unfitting("upload", &other)),
        }
    }

    /// Fetches files that a request is answered with; each appears in the folder whole and checked, or not at all.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn download(
        &self,
        request: &Request,
        folder: &Path,
    ) -> Result<Vec<FileRef>, ClientError> {
        let mut replies = self.ask(request).await?;
        let mut files = Vec::new();
        loop {
            match replies.next().await? {
                Some(Reply::File(file)) => {
                    replies.save(&file, folder).await?;
                    files.push(file);
                }
                Some(Reply::Done) => return Ok(files),
                Some(other) => return Err(unfitting("download", &other)),
                None => return Err(NetError::Ended { due: "reply" }.into()),
            }
        }
    }
}

impl Replies {
    /// The next one; none after the last.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal is one.
    pub async fn next(&mut self) -> Result<Option<Reply>, ClientError> {
        match self.stream.receiver.receive::<Reply>().await? {
            Some(Reply::Refused(refusal)) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    /// The only one.
    ///
    /// # Errors
    /// [`ClientError`]; a refusal is one.
    pub async fn one(&mut self) -> Result<Reply, ClientError> {
        let reply = self.next().await?;
        Ok(reply.ok_or(NetError::Ended { due: "reply" })?)
    }

    /// Where raw bytes come from.
    pub(super) fn receiver(&mut self) -> &mut Receiver {
        &mut self.stream.receiver
    }

    /// The bytes of a file that was just told of, into a folder.
    async fn save(&mut self, file: &FileRef, folder: &Path) -> Result<(), ClientError> {
        let path = place(file, folder)?;
        let beside = folder.join(format!(".{}.partial", file.path));
        let local = |what: &str, source| ClientError::Local {
            what: format!("{what} {}", path.display()),
            source,
        };
        let mut output = File::create(&beside)
            .await
            .map_err(|error| local("write", error))?;
        let outcome = receive_body(&mut self.stream.receiver, file, &mut output).await;
        let outcome = match outcome {
            Ok(()) => output
                .sync_all()
                .await
                .map_err(|error| local("write", error)),
            Err(error) => Err(error),
        };
        drop(output);
        if outcome.is_err() {
            // The first error is the one to tell.
            let _ = tokio::fs::remove_file(&beside).await;
            return outcome;
        }
        tokio::fs::rename(&beside, &path)
            .await
            .map_err(|error| local("write", error))
    }
}

/// Reads the body of a file from a stream, checks size and hash. For the side that takes an upload, too.
///
/// # Errors
/// [`ClientError`].
pub async fn receive_body(
    receiver: &mut Receiver,
    file: &FileRef,
    output: &mut (impl tokio::io::AsyncWrite + Unpin + Send),
) -> Result<(), ClientError> {
    let units::Bytes(left) = file.bytes;
    receive_rest(receiver, file, Sha256::new(), left, output).await
}

/// How long nothing of a file may come; a peer whose disk hangs answers on its connection still.
const SILENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 60 });

/// Reads the last bytes of a file, the hash of those before being known; checks the hash of the whole.
pub(super) async fn receive_rest(
    receiver: &mut Receiver,
    file: &FileRef,
    mut hash: Sha256,
    mut left: u64,
    output: &mut (impl tokio::io::AsyncWrite + Unpin + Send),
) -> Result<(), ClientError> {
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let piece = timeout(SILENCE, receiver.piece(most)).await;
        let silent = |_| NetError::Lost {
            reason: format!("nothing of {} came for {} s", file.path, SILENCE.as_secs()),
        };
        let Some(piece) = piece.map_err(silent)?? else {
            return Err(differs(file, format!("its stream ends {left} bytes early")));
        };
        hash.update(&piece);
        left -= piece.len() as u64;
        output
            .write_all(&piece)
            .await
            .map_err(|source| ClientError::Local {
                what: format!("write {}", file.path),
                source,
            })?;
    }
    output.flush().await.map_err(|source| ClientError::Local {
        what: format!("write {}", file.path),
        source,
    })?;
    let made = hex(&hash.finalize());
    if made == file.sha256 {
        return Ok(());
    }
    Err(differs(
        file,
        format!("its sha256 is {made}, not {}", file.sha256),
    ))
}

/// Where a file goes in a folder.
pub(super) fn place(file: &FileRef, folder: &Path) -> Result<PathBuf, ClientError> {
    plain_name::within(&file.path, folder)
        .ok_or_else(|| differs(file, "its name is no plain file name".into()))
}

pub(super) fn differs(file: &FileRef, what: String) -> ClientError {
    ClientError::File {
        path: file.path.clone(),
        what,
    }
}

fn unfitting(request: &'static str, reply: &Reply) -> ClientError {
    let reply = format!("{reply:?}").chars().take(60).collect();
    ClientError::Unfitting { request, reply }
}
