//! Asks the metadata service of a cloud whether this machine is to be taken, until it is.
//!
//! The services are plain HTTP at a link-local address; a base address of one's own stands in for them in tests. One that does not
//! answer says nothing: that is a machine of another cloud, or a service that will answer later.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use shared::config::schema::Cloud;
use shared::units::Micros;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::reclaim::{
    Said, aws_action, aws_rebalance, azure_events, gcp_maintenance, gcp_preempted,
};

/// An answer takes no longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A risk is over when nothing was said so often in a row.
const QUIET: u32 = 6;
/// Seconds that a token of AWS holds.
const TOKEN_LIFE: &str = "21600";
/// Version of Azure's events.
const AZURE: &str = "2020-07-01";

/// Whom to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The cloud.
    pub cloud: Cloud,
    /// Its service, `http://169.254.169.254` but for tests.
    pub base: String,
    /// Time between two questions.
    pub every: Duration,
}

/// The end of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reclaim {
    /// So long from now.
    pub within: Micros,
    /// In the cloud's words.
    pub cause: String,
}

impl Watch {
    /// The service of a cloud, asked as often as its notice needs.
    #[must_use]
    pub fn of(cloud: Cloud) -> Self {
        let base = match cloud {
            Cloud::Gcp => "http://metadata.google.internal",
            Cloud::Aws | Cloud::Azure => "http://169.254.169.254",
        };
        let every = match cloud {
            Cloud::Aws => Duration::from_secs(5),
            Cloud::Gcp | Cloud::Azure => Duration::from_secs(1),
        };
        Self {
            cloud,
            base: base.to_owned(),
            every,
        }
    }

    /// Waits until the machine is to be taken. What `risk` is told: why it may be, and none once that is not said any more.
    pub async fn reclaimed(
        &self,
        clock: impl Fn() -> Micros,
        risk: &watch::Sender<Option<String>>,
    ) -> Reclaim {
        // One that is there already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Without a client nothing is heard: as without a service.
        let Ok(client) = Client::builder().timeout(PATIENCE).no_proxy().build() else {
            return std::future::pending().await;
        };
        let mut due = interval(self.every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut quiet = 0;
        loop {
            due.tick().await;
            match self.ask(&client, clock()).await {
                Said::Nothing => {
                    // A service that does not answer once takes nothing back.
                    quiet += 1;
                    if quiet >= QUIET && risk.send_if_modified(|risk| risk.take().is_some()) {
                        tracing::info!("this machine may not be taken any more");
                    }
                }
                Said::Risk(words) => {
                    quiet = 0;
                    let fresh = risk.send_if_modified(|risk| {
                        let fresh = risk.as_ref() != Some(&words);
                        *risk = Some(words.clone());
                        fresh
                    });
                    if fresh {
                        tracing::warn!(words, "this machine may be taken");
                    }
                }
                Said::Notice { within, cause } => return Reclaim { within, cause },
            }
        }
    }

    async fn ask(&self, client: &Client, now: Micros) -> Said {
        let base = &self.base;
        match self.cloud {
            Cloud::Aws => {
                let token = client
                    .put(format!("{base}/latest/api/token"))
                    .header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_LIFE)
                    .send()
                    .await;
                let Ok(token) = token else {
                    return Said::Nothing;
                };
                let Ok(token) = token.text().await else {
                    return Said::Nothing;
                };
                let headers = [("X-aws-ec2-metadata-token", token.as_str())];
                let meta = |path: &str| format!("{base}/latest/meta-data/{path}");
                let action = get(client, &meta("spot/instance-action"), &headers).await;
                if let Some(body) = action {
                    return aws_action(&body, now);
                }
                let path = meta("events/recommendations/rebalance");
                let rebalance = get(client, &path, &headers).await;
                rebalance.map_or(Said::Nothing, |body| aws_rebalance(&body))
            }
            Cloud::Gcp => {
                let headers = [("Metadata-Flavor", "Google")];
                let meta = |path: &str| format!("{base}/computeMetadata/v1/instance/{path}");
                let preempted = get(client, &meta("preempted"), &headers).await;
                let said = preempted.map_or(Said::Nothing, |body| gcp_preempted(&body));
                let event = get(client, &meta("maintenance-event"), &headers).await;
                said.or(event.map_or(Said::Nothing, |body| gcp_maintenance(&body)))
            }
            Cloud::Azure => {
                let headers = [("Metadata", "true")];
                let name = format!(
                    "{base}/metadata/instance/compute/name?api-version={AZURE}&format=text"
                );
                // An event of another machine is none of this one's: without its name nothing is heard.
                let Some(name) = get(client, &name, &headers).await else {
                    return Said::Nothing;
                };
                let path = format!("{base}/metadata/scheduledevents?api-version={AZURE}");
                let events = get(client, &path, &headers).await;
                events.map_or(Said::Nothing, |body| azure_events(&body, name.trim(), now))
            }
        }
    }
}

/// The body of an answer that succeeded.
async fn get(client: &Client, url: &str, headers: &[(&str, &str)]) -> Option<String> {
    let mut request = client.get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    answer.text().await.ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Pages by method and path, each with the header that must come.
    type Pages = Arc<Mutex<BTreeMap<&'static str, (&'static str, &'static str)>>>;

    /// A service that shows pages, and 404 for the rest; each answer ends its connection.
    async fn stand_in(pages: Pages) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).await.is_err() {
                        break;
                    }
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).to_lowercase();
                let found = pages
                    .lock()
                    .unwrap()
                    .iter()
                    .find_map(|(path, (header, body))| {
                        let asked = head.starts_with(&path.to_lowercase());
                        (asked && head.contains(&header.to_lowercase())).then_some(*body)
                    });
                let answer = match found {
                    Some(body) => format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    ),
                    None => {
                        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                            .to_owned()
                    }
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    fn told(
        cloud: Cloud,
        first: &[(&'static str, (&'static str, &'static str))],
        then: (&'static str, (&'static str, &'static str)),
    ) -> Reclaim {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pages: Pages = Arc::new(Mutex::new(first.iter().copied().collect()));
            let address = stand_in(Arc::clone(&pages)).await;
            let reader = Watch {
                base: format!("http://{address}"),
                every: Duration::from_millis(5),
                ..Watch::of(cloud)
            };
            let (risks, _) = watch::channel(None);
            let waiting = reader.reclaimed(|| Micros(1_474_309_700_000_000), &risks);
            tokio::pin!(waiting);
            // While nothing, or a risk only, is said, it waits.
            let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
            assert!(early.is_err(), "{early:?}");
            let at_risk = first.iter().any(|(page, _)| page.contains("rebalance"));
            assert_eq!(risks.borrow().is_some(), at_risk);
            pages.lock().unwrap().insert(then.0, then.1);
            waiting.await
        })
    }

    #[test]
    fn aws_is_asked_with_a_token_and_a_recommendation_is_no_notice() {
        let token = "x-aws-ec2-metadata-token: secret";
        let first = [
            (
                "PUT /latest/api/token ",
                ("x-aws-ec2-metadata-token-ttl-seconds: 21600", "secret"),
            ),
            (
                "GET /latest/meta-data/events/recommendations/rebalance ",
                (token, r#"{"noticeTime": "2016-09-19T18:00:00Z"}"#),
            ),
        ];
        let action = r#"{"action": "terminate", "time": "2016-09-19T18:29:47Z"}"#;
        let page = "GET /latest/meta-data/spot/instance-action ";
        let reclaim = told(Cloud::Aws, &first, (page, (token, action)));
        assert_eq!(reclaim.within, Micros(87_000_000));
        assert!(reclaim.cause.contains("terminate"));
    }

    #[test]
    fn gcp_says_true_after_false() {
        let flavor = "metadata-flavor: google";
        let page = "GET /computeMetadata/v1/instance/preempted ";
        let reclaim = told(
            Cloud::Gcp,
            &[(page, (flavor, "FALSE"))],
            (page, (flavor, "TRUE")),
        );
        assert_eq!(reclaim.within, Micros(30_000_000));
    }

    #[test]
    fn azure_speaks_of_several_machines() {
        let header = "metadata: true";
        let name = "GET /metadata/instance/compute/name?";
        let page = "GET /metadata/scheduledevents?";
        let other = r#"{"Events": [{"EventType": "Preempt", "Resources": ["vm2"]}]}"#;
        let own = r#"{"Events": [{"EventType": "Preempt", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT", "Resources": ["vm1"]}]}"#;
        let first = [(name, (header, "vm1")), (page, (header, other))];
        let reclaim = told(Cloud::Azure, &first, (page, (header, own)));
        assert_eq!(reclaim.within, Micros(87_000_000));
    }
}
