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
            let account = &self.account;
            // The answer has the price in force at its begin, so an instant is enough.
            let from = instant_text((self.clock)());
            let form = form::prices(&account.fleet.types, &from, None);
            let text = self.text("DescribeSpotPriceHistory", &form).await?;
            let pools = match price_history::xml("DescribeSpotPriceHistory", &text) {
                Ok(pools) => pools,
                // None that is known now: what the operator says is taken.
                Err(FeedError::Empty { .. }) => return Ok(vec![account.untold()]),
                Err(error) => return Err(unsure("DescribeSpotPriceHistory", &error.to_string())),
            };
            let price = |own: &Observed| {
                let steps = own.spot_price.as_ref()?;
                steps.changes().last().map(|(_, price)| *price)
            };
            let own = pools
                .iter()
                .filter(|own| account.fleet.types.contains(&own.pool.machine));
            let seen: Vec<Sighting> = own
                .map(|own| Sighting {
                    pool: Pool {
                        provider: AWS.into(),
                        region: account.region.clone(),
                        ..own.pool.clone()
                    },
                    spot_price: price(own),
                    ..account.untold()
                })
                .collect();
            match seen.is_empty() {
                true => Ok(vec![account.untold()]),
                false => Ok(seen),
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
