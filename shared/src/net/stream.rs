//! Messages over a stream of QUIC, and raw bytes between them.
//!
//! - `ST-1` Dropping a future of `send`, `receive` or `piece` loses nothing and repeats nothing: what was begun stays in
//!   the half of the stream and goes on with the next call.
//! - `ST-2` A half that is dropped before [`Sender::finish`] is given up, and the peer sees that: what was cut off does
//!   not look whole.

use std::collections::VecDeque;
use std::future::Future;

use bytes::{Buf, Bytes, BytesMut};
use quinn::{RecvStream, SendStream};

use super::fault::{CloseCode, NetError};
use crate::wire::codec::{CodecError, FrameHead, HEAD, Limits, Message, frame, message};

/// Bytes asked of QUIC at once.
const READ: usize = 256 << 10;

/// Both halves of a stream.
#[derive(Debug)]
pub struct Stream {
    /// Towards the peer.
    pub sender: Sender,
    /// From the peer.
    pub receiver: Receiver,
}

impl Stream {
    /// Over the halves that QUIC gives.
    #[must_use]
    pub fn new((send, receive): (SendStream, RecvStream), limits: Limits) -> Self {
        Self {
            sender: Sender::new(send, limits),
            receiver: Receiver::new(receive, limits),
        }
    }
}

/// The half towards the peer.
#[derive(Debug)]
pub struct Sender {
    stream: SendStream,
    pending: VecDeque<Bytes>,
    limits: Limits,
    ended: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.ended {
            self.reset(CloseCode::Internal);
        }
    }
}

impl Sender {
    fn new(stream: SendStream, limits: Limits) -> Self {
        Self {
            stream,
            pending: VecDeque::new(),
            limits,
            ended: false,
        }
    }

    /// What may be sent at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sends a message. When the future is dropped the message still goes, with what is sent next.
    ///
    /// # Errors
    /// [`NetError`]; a message over its limit is refused before anything of it is sent.
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<(), NetError> {
        self.queue(frame(message, &self.limits)?.into());
        self.flush().await
    }

    /// Sends bytes as they are, after what was queued.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn send_raw(&mut self, bytes: Bytes) -> Result<(), NetError> {
        self.queue(bytes);
        self.flush().await
    }

    /// Puts bytes behind what waits; [`Self::flush`] sends them.
    pub fn queue(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pending.push_back(bytes);
        }
    }

    /// Sends all that waits.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn flush(&mut self) -> Result<(), NetError> {
        while !self.pending.is_empty() {
            let waiting = self.pending.make_contiguous();
            // Parts that are written whole become empty, the one after them shorter: no byte is copied here.
            let written = self.stream.write_chunks(waiting).await?;
            self.pending.drain(..written.chunks);
        }
        Ok(())
    }

    /// Ends this half after all that was sent.
    pub fn finish(&mut self) {
        self.ended = true;
        // Only a stream that ended already refuses.
        let _ = self.stream.finish();
    }

    /// Gives this half up: the peer sees that it does not end as meant.
    pub fn reset(&mut self, code: CloseCode) {
        self.ended = true;
        let _ = self.stream.reset(code.number());
    }

    /// Waits until the peer has all that was finished, or wants no more.
    ///
    /// # Errors
    /// [`NetError`] when the connection is lost before.
    pub async fn delivered(&mut self) -> Result<(), NetError> {
        self.stopped().await.map(|_| ())
    }

    /// Ends when the peer wants no more of this half, with its reason; or, without one, when it has all.
    ///
    /// # Errors
    /// [`NetError`] when the connection is lost before.
    pub fn stopped(
        &self,
    ) -> impl Future<Output = Result<Option<CloseCode>, NetError>> + Send + use<> {
        let stopped = self.stream.stopped();
        async move {
            match stopped.await {
                Ok(code) => Ok(code.map(CloseCode::of)),
                Err(quinn::StoppedError::ConnectionLost(lost)) => Err(lost.into()),
                Err(other) => Err(NetError::Lost {
                    reason: other.to_string(),
                }),
            }
        }
    }
}

/// The half from the peer.
#[derive(Debug)]
pub struct Receiver {
    stream: RecvStream,
    buffer: BytesMut,
    limits: Limits,
}

impl Receiver {
    fn new(stream: RecvStream, limits: Limits) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            limits,
        }
    }

    /// What may come at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The next message; none when the peer ended its half between two.
    ///
    /// # Errors
    /// [`NetError`]; after one the stream is of no use.
    pub async fn receive<M: Message>(&mut self) -> Result<Option<M>, NetError> {
        let Some(head) = self.peek_head().await? else {
            return Ok(None);
        };
        if head.kind != M::KIND {
            let (wanted, got) = (M::KIND, head.kind);
            return Err(CodecError::Unexpected { wanted, got }.into());
        }
        if !self.fill(HEAD + head.bytes).await? {
            return Err(NetError::Ended {
                due: head.kind.as_str(),
            });
        }
        self.buffer.advance(HEAD);
        let payload = self.buffer.split_to(head.bytes);
        Ok(Some(message(&payload, &self.limits)?))
    }

    /// The next message, which is due.
    ///
    /// # Errors
    /// [`NetError`]; [`NetError::Ended`] when the peer ended its half.
    pub async fn expect<M: Message>(&mut self) -> Result<M, NetError> {
        let due = M::KIND.as_str();
        self.receive().await?.ok_or(NetError::Ended { due })
    }

    /// The head of the next frame, which stays; none when the peer ended its half between two.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn peek_head(&mut self) -> Result<Option<FrameHead>, NetError> {
        if !self.fill(HEAD).await? {
            return match self.buffer.is_empty() {
                true => Ok(None),
                false => Err(NetError::Ended { due: "head" }),
            };
        }
        let Some(head) = self.buffer.first_chunk() else {
            return Err(NetError::Ended { due: "head" });
        };
        Ok(Some(FrameHead::decode(*head, &self.limits)?))
    }

    /// Takes the head that [`Self::peek_head`] showed; its payload comes next, as raw bytes.
    pub fn skip_head(&mut self) {
        self.buffer.advance(HEAD.min(self.buffer.len()));
    }

    /// The next raw bytes, at most so many; none at the end.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn piece(&mut self, most: usize) -> Result<Option<Bytes>, NetError> {
        if self.buffer.is_empty() {
            let chunk = self.stream.read_chunk(most.min(READ), true).await?;
            return Ok(chunk.map(|chunk| chunk.bytes));
        }
        let here = most.min(self.buffer.len());
        Ok(Some(self.buffer.split_to(here).freeze()))
    }

    /// Exactly so many raw bytes into a buffer. Not to be dropped before its end.
    ///
    /// # Errors
    /// [`NetError`]; [`NetError::Ended`] when fewer came.
    pub async fn read_into(
        &mut self,
        mut rest: &mut [u8],
        due: &'static str,
    ) -> Result<(), NetError> {
        while !rest.is_empty() {
            let read = self.read_some(rest, due).await?;
            rest = &mut rest[read..];
        }
        Ok(())
    }

    /// Raw bytes into a buffer, as many as are here and fit, at least one; how many. Each is copied once.
    ///
    /// # Errors
    /// [`NetError`]; [`NetError::Ended`] at the end.
    pub async fn read_some(
        &mut self,
        into: &mut [u8],
        due: &'static str,
    ) -> Result<usize, NetError> {
        // Not more at once: meanwhile nothing else of the connection moves.
        let most = into.len().min(READ);
        let into = &mut into[..most];
        if self.buffer.is_empty() {
            let read = self.stream.read(into).await?;
            return read.ok_or(NetError::Ended { due });
        }
        let here = most.min(self.buffer.len());
        into[..here].copy_from_slice(&self.buffer[..here]);
        self.buffer.advance(here);
        Ok(here)
    }

    /// Tells the peer that no more of its half is wanted.
    pub fn stop(&mut self, code: CloseCode) {
        let _ = self.stream.stop(code.number());
    }

    /// Has so many bytes in the buffer; whether the stream had them.
    async fn fill(&mut self, bytes: usize) -> Result<bool, NetError> {
        while self.buffer.len() < bytes {
            // Memory grows with what came, not with what a head tells of.
            let Some(chunk) = self.stream.read_chunk(READ, true).await? else {
                return Ok(false);
            };
            self.buffer.extend_from_slice(&chunk.bytes);
        }
        Ok(true)
    }
}
