//! What the coordinator answers: the machine what is decided, the shell files, texts and certificates.

use std::path::Path;
use std::sync::Arc;

use actix::Addr;
use shared::hexadecimal;
use shared::net::endpoint::Peer;
use shared::net::enroll::Enroller;
use shared::net::fault::NetError;
use shared::net::router::{Service, Stop};
use shared::net::stream::Stream;
use shared::wire::opening::Opening;
use shared::wire::order::SampleOrder;
use shared::wire::request::{Joining, Refusal, RefusalCode, Reply, Request, SampleRequest};
use shared::wire::view::NodeView;
use tokio::sync::{Semaphore, mpsc};

use super::coordinator::CoordinatorActor;
use super::farewell::Farewell;
use super::files::{self, refusal};
use super::library::Library;
use super::messages::{ANSWERS, AdapterOf, Ask, Gone, Question, ToClient};
use super::renewal::{expired, send_away};
use super::settings::CoordinatorSettings;
use super::{nodes, samples};

/// The doorkeeper.
pub(super) struct CoordinatorService {
    pub(super) actor: Addr<CoordinatorActor>,
    pub(super) settings: CoordinatorSettings,
    pub(super) enroller: Option<Arc<Enroller>>,
    pub(super) library: Library,
    /// Uploads that are in memory at once.
    pub(super) in_memory: Semaphore,
}

const NO_AUTHORITY: &str =
    "this coordinator makes no certificates: ask whoever has the cluster's authority";

impl Service for CoordinatorService {
    async fn request(
        &self,
        peer: &Peer,
        request: Request,
        stream: &mut Stream,
        stop: Stop,
    ) -> Result<(), NetError> {
        let now = (self.settings.wall)();
        if now >= peer.until {
            send_away(peer);
            return Ok(());
        }
        let store = &self.settings.store;
        let reply = match request {
            Request::HasFile(file) => files::has(store, &file).await,
            Request::PutFile(file) => {
                let beside = (self.beside(), &self.in_memory);
                files::put(store, beside, &file, self.settings.largest_upload, stream).await?
            }
            Request::Fetch(job) => match self.actor.send(AdapterOf(job)).await {
                Ok(Ok(written)) => {
                    files::send_adapter(store, self.beside(), &written, stream).await?
                }
                Ok(Err(refusal)) => Err(refusal),
                Err(_) => Ok(closing()),
            },
            Request::Sample(sample) => return self.sample(peer, &sample, stream, stop).await,
            Request::Backbone => match self.nodes().await {
                Ok(nodes) => self.library.tell(nodes).await,
                Err(reply) => Ok(reply),
            },
            Request::BackboneFile { file, from } => {
                return self.library.serve(&file, from, stream).await;
            }
            Request::Renew { signing_request } => Ok(match &self.enroller {
                Some(enroller) => enroller.renew(peer, &signing_request, now),
                None => Reply::Refused(refusal(RefusalCode::Invalid, NO_AUTHORITY.into())),
            }),
            other => {
                let question = Question::Request {
                    trace: trace(),
                    request: other,
                };
                return self.ask(peer, question, stream, stop, |_| None).await;
            }
        };
        stream
            .sender
            .send(&reply.unwrap_or_else(Reply::Refused))
            .await
    }

    async fn stream(
        &self,
        peer: Peer,
        opening: Opening,
        stream: Stream,
        stop: Stop,
    ) -> Result<(), NetError> {
        match opening {
            Opening::Node => {
                nodes::serve(peer, stream, &self.actor, &self.settings.wall, stop).await
            }
            // The router lets nothing else through.
            Opening::Request | Opening::Link(_) => Ok(()),
        }
    }

    async fn join(&self, joining: Joining) -> Reply {
        match &self.enroller {
            Some(enroller) => enroller.join(&joining, (self.settings.wall)()),
            None => Reply::Refused(refusal(RefusalCode::Invalid, NO_AUTHORITY.into())),
        }
    }
}

impl CoordinatorService {
    /// The folder of files that pass through.
    fn beside(&self) -> &Path {
        let folder = self.settings.journal.parent();
        folder.unwrap_or_else(|| Path::new("."))
    }

    /// Passes a question to the machine, and its answers to the client until the last.
    async fn ask(
        &self,
        peer: &Peer,
        question: Question,
        stream: &mut Stream,
        mut stop: Stop,
        mut text: impl FnMut(&[u32]) -> Option<String>,
    ) -> Result<(), NetError> {
        let (answers, mut inbox) = mpsc::channel(ANSWERS);
        let Ok(handle) = self.actor.send(Ask(question, answers)).await else {
            return stream.sender.send(&closing()).await;
        };
        let _gone = Farewell::new(&self.actor, move || Gone(handle));
        let expired = expired(peer, &self.settings.wall);
        tokio::pin!(expired);
        loop {
            let told = tokio::select! {
                // Whose certificate has run out is told nothing more; what is there already is told before an end is: it
                // may say why.
                biased;
                () = &mut expired => {
                    send_away(peer);
                    return Ok(());
                }
                told = inbox.recv() => told,
                () = stop.wait() => return stream.sender.send(&closing()).await,
            };
            let (reply, last) = match told {
                // The actor ended, or gave up a client that is too slow.
                None => {
                    let last = match self.actor.connected() {
                        true => too_slow(),
                        false => closing(),
                    };
                    return stream.sender.send(&last).await;
                }
                Some(ToClient::Reply(reply, last)) => (*reply, last),
                Some(ToClient::Tokens(tokens)) => match text(&tokens) {
                    Some(text) => (Reply::Piece(text), false),
                    None => continue,
                },
            };
            // Of a sample that has ended: what its last tokens began and nothing completed.
            if last && let Some(rest) = text(&[]) {
                stream.sender.send(&Reply::Piece(rest)).await?;
            }
            match stream.sender.send(&reply).await {
                // Nothing of it was sent.
                Err(NetError::Codec(error)) => {
                    let message = format!("the answer cannot be sent: {error}");
                    let refused = Reply::Refused(refusal(RefusalCode::Internal, message));
                    return stream.sender.send(&refused).await;
                }
                sent => sent?,
            }
            if last {
                return Ok(());
            }
        }
    }

    async fn sample(
        &self,
        peer: &Peer,
        request: &SampleRequest,
        stream: &mut Stream,
        stop: Stop,
    ) -> Result<(), NetError> {
        let language = &self.settings.language;
        let order = match self.sample_order(request).await {
            Ok(order) => order,
            Err(refusal) => return stream.sender.send(&Reply::Refused(refusal)).await,
        };
        let mut decoder = language.tokenizer.stream(true);
        let text = |tokens: &[u32]| {
            let text = match tokens {
                [] => decoder.finish().unwrap_or_default(),
                tokens => samples::text(&mut decoder, tokens),
            };
            (!text.is_empty()).then_some(text)
        };
        self.ask(
            peer,
            Question::Sample(request.job.clone(), order),
            stream,
            stop,
            text,
        )
        .await
    }

    /// A prompt of megabytes takes seconds to become tokens, in which the network must not stand still: nodes would count as lost.
    async fn sample_order(&self, request: &SampleRequest) -> Result<SampleOrder, Refusal> {
        let (request, language) = (request.clone(), Arc::clone(&self.settings.language));
        let shape = self.settings.decisions.backbone.shape.clone();
        let order = move || samples::order(&request, &language, &shape);
        let made = tokio::task::spawn_blocking(order).await;
        made.unwrap_or_else(|error| {
            let message = format!("the prompt could not be made into tokens: {error}");
            Err(refusal(RefusalCode::Internal, message))
        })
    }

    async fn nodes(&self) -> Result<Vec<NodeView>, Reply> {
        match self.one_reply(Request::Nodes).await? {
            Reply::Nodes(nodes) => Ok(nodes),
            other => Err(other),
        }
    }

    /// What the machine answers to a question that has one answer.
    async fn one_reply(&self, request: Request) -> Result<Reply, Reply> {
        let (answers, mut inbox) = mpsc::channel(ANSWERS);
        let question = Question::Request {
            trace: String::new(),
            request,
        };
        if self.actor.send(Ask(question, answers)).await.is_err() {
            return Err(closing());
        }
        match inbox.recv().await {
            Some(ToClient::Reply(reply, _)) => Ok(*reply),
            _ => Err(closing()),
        }
    }
}

fn too_slow() -> Reply {
    let message = format!(
        "answers came faster than they were taken, and more than {ANSWERS} waited: ask again, for events behind the last one seen \
         (--after)"
    );
    Reply::Refused(refusal(RefusalCode::Busy, message))
}

fn closing() -> Reply {
    Reply::Refused(refusal(
        RefusalCode::Busy,
        "the coordinator is ending: ask again when it is back".into(),
    ))
}

/// A name for what a request sets off, in all processes.
fn trace() -> String {
    let mut bytes = [0; 16];
    // Without randomness a trace has a name that others have too: no harm but to whoever looks for it.
    let _ = getrandom::fill(&mut bytes);
    hexadecimal::lower(&bytes)
}
