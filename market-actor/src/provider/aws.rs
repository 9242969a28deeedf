//! Machines of AWS EC2, by the query API: five calls, signed by `aws-sigv4`, sent by `reqwest`, read by `quick-xml`.
//!
//! The whole client library for EC2 takes minutes to compile; these calls are all that is needed. A lost answer is looked up by
//! tag before it is asked again, so PR-1 does not rest on the service's memory of client tokens alone. The service does not say how
//! many machines it would give: what it refused is learned by the broker. Ends are told to the machine itself: the gpu-actor hears
//! them.

pub mod element;
pub mod form;
pub mod refusal;
pub mod words;

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::Client;
use shared::units::{MicroUsd, Micros};

use super::replay::Clock;
use super::{Answer, Machine, Provider, ProviderError, Sighting, Signal, Want};
use crate::feed::fault::FeedError;
use crate::feed::{Observed, instant_text, price_history};
use crate::market::Pool;
use element::Element;
use form::Form;
use refusal::{AWS, unsure};
use words::Fleet;

/// Most pages of one answer.
const PAGES: usize = 100;
/// Type of a form.
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// Whose machines, and where.
#[derive(Clone)]
pub struct Account {
    /// Where the API is, `https://ec2.us-east-1.amazonaws.com`.
    pub endpoint: String,
    /// Region.
    pub region: String,
    /// Key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// Token of a session, where the key is one of a role.
    pub session_token: Option<String>,
    /// What is asked for.
    pub fleet: Fleet,
    /// Of a spot machine for an hour, where the price history names none.
    pub spot_price: MicroUsd,
    /// Of a machine on demand for an hour: the API does not say.
    pub on_demand_price: MicroUsd,
    /// Most spot machines that are believed to be there.
    pub most: u32,
}

impl Account {
    /// A pool of which nothing is known: any of the types in any zone of the region.
    fn untold(&self) -> Sighting {
        Sighting {
            pool: Pool {
                provider: AWS.into(),
                region: self.region.clone(),
                zone: String::new(),
                machine: String::new(),
            },
            spot_price: Some(self.spot_price),
            spot_available: Some(self.most),
            on_demand_price: Some(self.on_demand_price),
            on_demand_available: None,
        }
    }
}

impl Account {
    /// What the price history says of a pool.
    fn seen(&self, own: &Observed) -> Sighting {
        let steps = own.spot_price.as_ref();
        let last = steps.and_then(|steps| steps.changes().last());
        Sighting {
            pool: Pool {
                provider: AWS.into(),
                region: self.region.clone(),
                ..own.pool.clone()
            },
            spot_price: last.map(|(_, price)| *price),
            ..self.untold()
        }
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("endpoint", &self.endpoint)
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}

/// The provider.
pub struct Aws {
    account: Account,
    client: Client,
    clock: Clock,
    /// The pools that were shown last.
    shown: Vec<Sighting>,
}

impl std::fmt::Debug for Aws {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aws")
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

impl Aws {
    /// Machines of an account.
    ///
    /// # Errors
    /// When the system gives no TLS.
    pub fn new(account: Account, clock: Clock) -> Result<Self, ProviderError> {
        // One that is there already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .timeout(Duration::from_secs(20))
            .build()
            .map_err(|error| unsure("set-up", &error.to_string()))?;
        Ok(Self {
            account,
            client,
            clock,
            shown: Vec::new(),
        })
    }

    async fn call(&self, call: &str, form: &Form) -> Result<Element, ProviderError> {
        let text = self.text(call, form).await?;
        Element::read(&text).ok_or_else(|| unsure(call, "the answer is no XML"))
    }

    async fn text(&self, call: &str, form: &Form) -> Result<String, ProviderError> {
        let body = form.body();
        let mut request = self
            .client
            .post(&self.account.endpoint)
            .header("content-type", FORM);
        for (name, value) in self.signed(call, &body)? {
            request = request.header(name, value);
        }
        let failed = |error: reqwest::Error| unsure(call, &error.to_string());
        let response = request.body(body).send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let text = response.text().await.map_err(failed)?;
        match refusal::fault(call, status, &text) {
            Some(error) => Err(error),
            None => Ok(text),
        }
    }

    /// Headers that prove who asks.
    fn signed(&self, call: &str, body: &str) -> Result<Vec<(String, String)>, ProviderError> {
        let account = &self.account;
        let wrong = |why: String| ProviderError::Refused {
            provider: AWS.into(),
            why: format!("{call} cannot be signed: {why}"),
        };
        let identity = Credentials::new(
            &account.access_key_id,
            &account.secret_access_key,
            account.session_token.clone(),
            None,
            "settings",
        )
        .into();
        let time = UNIX_EPOCH + Duration::from_micros((self.clock)().0);
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&account.region)
            .name("ec2")
            .time(time)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| wrong(error.to_string()))?
            .into();
        let headers = [("content-type", FORM)];
        let body = SignableBody::Bytes(body.as_bytes());
        let request =
            SignableRequest::new("POST", account.endpoint.as_str(), headers.into_iter(), body)
                .map_err(|error| wrong(error.to_string()))?;
        let output = sign(request, &params).map_err(|error| wrong(error.to_string()))?;
        let (instructions, _) = output.into_parts();
        let headers = instructions.headers();
        Ok(headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// Pools whose price is known now, over all pages: one of them may be empty.
    async fn prices(&self) -> Result<Vec<Sighting>, ProviderError> {
        const CALL: &str = "DescribeSpotPriceHistory";
        let account = &self.account;
        // The answer has the price in force at its begin, so an instant is enough.
        let from = instant_text((self.clock)());
        let (mut seen, mut page) = (BTreeMap::new(), None::<String>);
        for _ in 0..PAGES {
            let form = form::prices(&account.fleet.types, &from, page.as_deref());
            let text = self.text(CALL, &form).await?;
            let pools = match price_history::xml(CALL, &text) {
                Ok(pools) => pools,
                Err(FeedError::Empty { .. }) => Vec::new(),
                Err(error) => return Err(unsure(CALL, &error.to_string())),
            };
            for own in pools {
                if account.fleet.types.contains(&own.pool.machine) {
                    let one = account.seen(&own);
                    seen.insert((one.pool.zone.clone(), one.pool.machine.clone()), one);
                }
            }
            let answer =
                Element::read(&text).ok_or_else(|| unsure(CALL, "the answer is no XML"))?;
            page = answer.next_page().map(ToOwned::to_owned);
            if page.is_none() {
                return Ok(seen.into_values().collect());
            }
        }
        Err(unsure(CALL, "more pages than are read"))
    }

    async fn all(&self, of: &Want) -> Result<Vec<Machine>, ProviderError> {
        let cluster = &self.account.fleet.cluster;
        let form = form::list(cluster, Some(&of.token), None);
        Ok(words::machines(
            &self.call("DescribeInstances", &form).await?,
        ))
    }
}

impl Provider for Aws {
    fn name(&self) -> &str {
        AWS
    }

    fn notice(&self) -> Micros {
        Micros::of_millis(120_000)
    }

    fn offers(&mut self) -> Answer<'_, Vec<Sighting>> {
        Box::pin(async move {
            let seen = self.prices().await?;
            if !seen.is_empty() {
                self.shown.clone_from(&seen);
                return Ok(seen);
            }
            // None that is known now: those known before have not gone, else what the operator says is taken.
            match self.shown.is_empty() {
                true => Ok(vec![self.account.untold()]),
                false => Ok(self.shown.clone()),
            }
        })
    }

    fn acquire<'a>(&'a mut self, want: &'a Want) -> Answer<'a, Machine> {
        Box::pin(async move {
            let known = self.all(want).await?;
            if let Some(machine) = known.into_iter().next() {
                return Ok(machine);
            }
            let form = form::acquire(&self.account.fleet, want);
            words::granted(&self.call("CreateFleet", &form).await?, want)
        })
    }

    fn release<'a>(&'a mut self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            match self.call("TerminateInstances", &form::release(id)).await {
                Err(ProviderError::Refused { why, .. })
                    if why.starts_with("InvalidInstanceID.NotFound") =>
                {
                    Ok(())
                }
                other => other.map(|_| ()),
            }
        })
    }

    fn list(&mut self) -> Answer<'_, Vec<Machine>> {
        Box::pin(async move {
            let mut all = Vec::new();
            let mut page: Option<String> = None;
            for _ in 0..PAGES {
                let form = form::list(&self.account.fleet.cluster, None, page.as_deref());
                let answer = self.call("DescribeInstances", &form).await?;
                all.extend(words::machines(&answer));
                page = answer.next_page().map(ToOwned::to_owned);
                if page.is_none() {
                    return Ok(all);
                }
            }
            Err(unsure("DescribeInstances", "more pages than are read"))
        })
    }

    fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn page(zone: Option<&str>, next: &str) -> String {
        let item = zone.map(|zone| {
            format!(
                "<item><instanceType>g5.xlarge</instanceType><productDescription>Linux/UNIX</productDescription>\
                 <spotPrice>0.4</spotPrice><timestamp>2026-01-01T00:00:00.000Z</timestamp><availabilityZone>{zone}</availabilityZone></item>"
            )
        });
        let items = item.unwrap_or_default();
        format!(
            "<DescribeSpotPriceHistoryResponse><spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{next}</nextToken>\
             </DescribeSpotPriceHistoryResponse>"
        )
    }

    #[tokio::test]
    async fn an_answer_without_prices_takes_no_pool_away_and_all_pages_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let answers = [
            page(None, ""),
            page(None, "more"),
            page(Some("z-a"), "more"),
            page(Some("z-b"), ""),
            page(None, ""),
        ];
        let served = tokio::spawn(async move {
            let mut asked = Vec::new();
            for body in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let whole = |request: &[u8]| {
                    let text = String::from_utf8_lossy(request).to_lowercase();
                    let (head, body) = text.split_once("\r\n\r\n")?;
                    let length = head.split("content-length: ").nth(1)?;
                    (body.len() >= length.lines().next()?.trim().parse().ok()?).then_some(())
                };
                while whole(&request).is_none() {
                    assert!(stream.read_buf(&mut request).await.unwrap() > 0);
                }
                asked.push(String::from_utf8_lossy(&request).contains("NextToken=more"));
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
            asked
        });
        let account = Account {
            endpoint,
            region: "here".into(),
            access_key_id: "a".into(),
            secret_access_key: "b".into(),
            session_token: None,
            fleet: Fleet {
                template: "t".into(),
                types: vec!["g5.xlarge".into()],
                cluster: "local-0a0a0a0a".into(),
            },
            spot_price: MicroUsd(1),
            on_demand_price: MicroUsd(2),
            most: 4,
        };
        let mut aws = Aws::new(account, Arc::new(|| Micros(0))).unwrap();
        let mut zones = async || -> Vec<String> {
            let offers = aws.offers().await.unwrap();
            offers.into_iter().map(|one| one.pool.zone).collect()
        };
        assert_eq!(zones().await, [""], "nothing is known yet");
        assert_eq!(zones().await, ["z-a", "z-b"]);
        assert_eq!(zones().await, ["z-a", "z-b"], "they have not gone");
        assert_eq!(served.await.unwrap(), [false, false, true, true, false]);
    }
}
