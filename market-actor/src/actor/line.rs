//! Asks the coordinator: regularly what there is, and what the broker wants of it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use shared::net::client::{Client, ClientError};
use shared::net::credential::Credential;
use shared::net::endpoint::Endpoint;
use shared::net::renew;
use shared::wire::market::MarketTold;
use shared::wire::request::{JobRef, RefusalCode, Reply, Request};
use shared::wire::view::{NodeHealth, NodeView};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::market::MarketActor;
use super::messages::{Ask, Heard};
use super::settings::MarketSettings;
use super::specifications::Specifications;
use crate::broker::Event;
use crate::broker::told::NodeTold;

/// Reasons why the coordinator is not reached that are told in a row, at most.
const REASONS: usize = 16;

/// Works until nobody listens.
pub(super) async fn run(
    settings: MarketSettings,
    endpoint: Arc<Endpoint>,
    own: Credential,
    mut asks: mpsc::Receiver<Ask>,
    actor: Addr<MarketActor>,
) {
    let mut due = interval(settings.look);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut client: Option<Client> = None;
    let mut specifications = Specifications::default();
    let mut told = BTreeSet::new();
    loop {
        let ask = tokio::select! {
            ask = asks.recv() => match ask {
                None => return,
                ask => ask,
            },
            _ = due.tick() => None,
        };
        let patience = settings.patience;
        let outcome =
            match within(patience, connected(&mut client, &endpoint, &own, &settings)).await {
                Err(error) => Err(error),
                Ok(client) => match ask {
                    Some(ask) => within(patience, order(client, ask, &settings)).await,
                    // What was learned stays where it takes too long: the next look goes on from there.
                    None => {
                        let looked = look(client, &endpoint, &settings, &mut specifications);
                        within(patience, looked).await.map(Some)
                    }
                },
            };
        if outcome.is_ok() {
            told.clear();
        }
        let event = match outcome {
            Ok(None) => continue,
            Ok(Some(event)) => event,
            Err(error) => {
                let reason = error.to_string();
                if is_news(&mut told, &reason) {
                    tracing::warn!(reason, "the coordinator is not reached, and is tried again");
                }
                client = None;
                Event::Unheard
            }
        };
        if actor.send(Heard(event)).await.is_err() {
            return;
        }
    }
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match timeout(patience, work).await {
        Ok(done) => done,
        Err(_) => Err(ClientError::Net(shared::net::fault::NetError::Lost {
            reason: format!("no answer within {} s", patience.as_secs()),
        })),
    }
}

async fn connected<'a>(
    client: &'a mut Option<Client>,
    endpoint: &Endpoint,
    own: &Credential,
    settings: &MarketSettings,
) -> Result<&'a Client, ClientError> {
    if client.is_none() {
        let fresh = connect(endpoint, own, &settings.credential, settings.coordinator).await?;
        return Ok(client.insert(fresh));
    }
    Ok(client.as_ref().expect("it was just found"))
}

/// Shows the certificate that lies in the file now: with one that expired nobody is let in, and it may have been made anew.
async fn connect(
    endpoint: &Endpoint,
    own: &Credential,
    path: &Path,
    coordinator: SocketAddr,
) -> Result<Client, ClientError> {
    if let Err(error) = renew::show_file(endpoint, own, path) {
        tracing::debug!(%error, "the certificate that was read last is shown");
    }
    Ok(Client::connect(endpoint, coordinator).await?)
}

/// Whether this reason was not told since the coordinator was reached last.
fn is_news(told: &mut BTreeSet<String>, reason: &str) -> bool {
    told.len() < REASONS && told.insert(reason.to_owned())
}

/// Nodes and jobs; the certificate is made anew when its time has come.
async fn look(
    client: &Client,
    endpoint: &Endpoint,
    settings: &MarketSettings,
    specifications: &mut Specifications,
) -> Result<Event, ClientError> {
    if let Ok(held) = Credential::load(&settings.credential)
        && renew::next_look(&held, (settings.clocks.wall)()).is_none()
    {
        match renew::renew(client, endpoint, &held, &settings.credential).await {
            Ok(_) => tracing::info!("certificate renewed"),
            Err(error) => tracing::warn!(%error, "certificate not renewed"),
        }
    }
    let nodes = match client.request(&Request::Nodes).await? {
        Reply::Nodes(nodes) => nodes,
        other => return Err(unfitting("Nodes", &other)),
    };
    let jobs = match client.request(&Request::Jobs).await? {
        Reply::Jobs(jobs) => jobs,
        other => return Err(unfitting("Jobs", &other)),
    };
    for job in specifications.missing(&jobs) {
        match client.request(&Request::Job(JobRef::Id(job))).await {
            Ok(Reply::Job(view)) => specifications.learn(&view),
            Ok(other) => return Err(unfitting("Job", &other)),
            // It was let go since: the next list is without it.
            Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Event::Cluster {
        nodes: nodes.iter().map(node).collect(),
        jobs: jobs.iter().map(|view| specifications.told(view)).collect(),
    })
}

fn unfitting(request: &'static str, reply: &Reply) -> ClientError {
    ClientError::Unfitting {
        request,
        reply: format!("{reply:?}"),
    }
}

/// Asks for one thing; what the broker must hear where that is refused.
async fn order(
    client: &Client,
    ask: Ask,
    settings: &MarketSettings,
) -> Result<Option<Event>, ClientError> {
    let request = match &ask {
        Ask::Drain(node) => Request::Drain {
            node: node.clone(),
            undo: false,
            // Its machine goes, whether or not its layers have another place.
            force: true,
        },
        Ask::Leaving { node, until } => Request::Reclaim {
            node: node.clone(),
            within: until.since((settings.clocks.steady)()),
        },
        Ask::Undrain(node) => Request::Drain {
            node: node.clone(),
            undo: true,
            force: false,
        },
        Ask::Risk { node, cause } => Request::Risk {
            node: node.clone(),
            cause: cause.clone(),
        },
        Ask::Tell(told) => Request::Market(MarketTold::clone(told)),
        Ask::Pause(job) => Request::Pause(JobRef::Id(*job)),
    };
    match client.request(&request).await {
        Ok(_) => Ok(None),
        // It is asked again while it is wanted, and told again.
        Err(ClientError::Refused(refusal)) => {
            // There is no such node any more, it is done already, or nothing can take the work yet.
            let usual = matches!(
                refusal.code,
                RefusalCode::NotFound | RefusalCode::Conflict | RefusalCode::NoCapacity
            );
            if !usual {
                tracing::warn!(?ask, %refusal, "the coordinator refuses");
            }
            Ok(ask.undone())
        }
        Err(error) => Err(error),
    }
}

fn node(view: &NodeView) -> NodeTold {
    NodeTold {
        name: view.name.clone(),
        alive: view.health.is_here(),
        draining: view.health == NodeHealth::Draining,
        holds: view.holds.is_some(),
        at_risk: view.risk.is_some(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::SystemTime;

    use shared::net::authority::{Authority, MEMBER_LIFE};
    use shared::net::endpoint::{EndpointSettings, Peer};
    use shared::net::fault::NetError;
    use shared::net::identity::{Identity, Role};
    use shared::net::router::{Router, RouterLimits, Service, Stop};
    use shared::net::stream::Stream;
    use shared::units::Micros;
    use shared::wire::opening::Opening;

    use super::*;

    /// A coordinator that says yes.
    struct Host;

    impl Service for Host {
        async fn request(
            &self,
            _: &Peer,
            _: Request,
            stream: &mut Stream,
            _: Stop,
        ) -> Result<(), NetError> {
            stream.sender.send(&Reply::Done).await
        }

        async fn stream(&self, _: Peer, _: Opening, _: Stream, _: Stop) -> Result<(), NetError> {
            Ok(())
        }
    }

    #[test]
    fn each_reason_is_told_once() {
        let mut told = BTreeSet::new();
        assert!(is_news(&mut told, "nobody answers") && is_news(&mut told, "it expired"));
        assert!(!is_news(&mut told, "nobody answers"));
        let more = (0..100).filter(|n| is_news(&mut told, &n.to_string()));
        assert_eq!(more.count(), REASONS - 2);
    }

    #[tokio::test]
    #[expect(
        clippy::disallowed_methods,
        reason = "TLS compares certificates with the clock of the system"
    )]
    async fn a_file_that_was_made_anew_lets_a_market_in_whose_certificate_expired() {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = Micros(u64::try_from(since.unwrap().as_micros()).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("authority.pem");
        let authority = Authority::create(&place, &"c".parse().unwrap(), now).unwrap();
        let issue = |role, name: &str, at| {
            let identity = Identity {
                cluster: "c".parse().unwrap(),
                role,
                name: name.parse().unwrap(),
            };
            authority.issue(&identity, MEMBER_LIFE, at).unwrap()
        };
        let settings = EndpointSettings::at("127.0.0.1:0".parse().unwrap());
        let host = issue(Role::Coordinator, "coordinator", now);
        let host = Arc::new(Endpoint::open(&settings, &host, true).unwrap());
        let address = host.address().unwrap();
        let _router = Router::start(host, Host, RouterLimits::default());
        let path = folder.path().join("market.pem");
        let expired = issue(
            Role::MarketActor,
            "market",
            Micros(now.0 - 3 * MEMBER_LIFE.0),
        );
        expired.save(&path).unwrap();
        let endpoint = Endpoint::open(&settings, &expired, false).unwrap();
        let asked = async || match connect(&endpoint, &expired, &path, address).await {
            Ok(client) => client.request(&Request::Status).await.is_ok(),
            Err(_) => false,
        };
        assert!(!asked().await);
        issue(Role::MarketActor, "market", now).save(&path).unwrap();
        assert!(asked().await);
    }
}
