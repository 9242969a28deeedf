//! The EC2 query API in words: requests as forms, answers as XML. Pure.
//!
//! Version 2016-11-15 of the API. Five calls are used: DescribeSpotPriceHistory, CreateFleet (type instant), DescribeInstances,
//! TerminateInstances, and nothing that changes anything else.

use quick_xml::Reader;
use quick_xml::events::Event;
use shared::ids::NodeName;

use crate::provider::{Kind, Machine, MachineState, ProviderError, Want};

/// Tag of all machines of a cluster; its value is the cluster's name.
pub const CLUSTER_TAG: &str = "spotmux-cluster";
/// Tag of the request that a machine came of; the machine reads its node's name from it.
pub const TOKEN_TAG: &str = "spotmux-token";

/// Its name.
pub(super) const AWS: &str = "aws";
const VERSION: &str = "2016-11-15";
/// Deepest nesting of an answer that is read.
const DEEPEST: usize = 32;

/// What machines are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Name of the launch template: image, key, user data that starts a gpu-actor.
    pub template: String,
    /// Types that will do.
    pub types: Vec<String>,
    /// The cluster's name.
    pub cluster: String,
}

/// A form, `Action=..&Version=..&..`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pairs: Vec<(String, String)>,
}

impl Form {
    /// One of a call.
    #[must_use]
    pub fn of(action: &str) -> Self {
        Self::default()
            .with("Action", action)
            .with("Version", VERSION)
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.pairs.push((name.into(), value.into()));
        self
    }

    /// As the body of a request.
    #[must_use]
    pub fn body(&self) -> String {
        let pairs = self.pairs.iter();
        let pairs: Vec<String> = pairs
            .map(|(name, value)| format!("{}={}", escaped(name), escaped(value)))
            .collect();
        pairs.join("&")
    }
}

/// Percent signs for all but letters, digits and `-._~`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Asks for spot prices from an instant on, ISO 8601.
#[must_use]
pub fn prices(types: &[String], from: &str, page: Option<&str>) -> Form {
    let mut form = Form::of("DescribeSpotPriceHistory")
        .with("ProductDescription.1", "Linux/UNIX")
        .with("StartTime", from);
    for (at, machine) in types.iter().enumerate() {
        form = form.with(format!("InstanceType.{}", at + 1), machine);
    }
    paged(form, page)
}

/// Asks for one machine, once by its token.
#[must_use]
pub fn acquire(fleet: &Fleet, want: &Want) -> Form {
    let config = "LaunchTemplateConfigs.1";
    let mut form = Form::of("CreateFleet")
        .with("Type", "instant")
        .with("ClientToken", want.token.as_str())
        .with("TargetCapacitySpecification.TotalTargetCapacity", "1")
        .with(
            "TargetCapacitySpecification.DefaultTargetCapacityType",
            match want.kind {
                Kind::Spot => "spot",
                Kind::OnDemand => "on-demand",
            },
        )
        .with(
            format!("{config}.LaunchTemplateSpecification.LaunchTemplateName"),
            &fleet.template,
        )
        .with(
            format!("{config}.LaunchTemplateSpecification.Version"),
            "$Latest",
        );
    if want.kind == Kind::Spot {
        form = form.with("SpotOptions.AllocationStrategy", "capacity-optimized");
    }
    // The pool's own type, or any where it names none.
    let types: Vec<&String> = match fleet.types.iter().find(|own| **own == want.pool.machine) {
        Some(own) => vec![own],
        None => fleet.types.iter().collect(),
    };
    for (at, machine) in types.iter().enumerate() {
        let own = format!("{config}.Overrides.{}", at + 1);
        form = form.with(format!("{own}.InstanceType"), machine.as_str());
        if !want.pool.zone.is_empty() {
            form = form.with(format!("{own}.AvailabilityZone"), &want.pool.zone);
        }
    }
    for (at, resource) in ["instance", "fleet"].into_iter().enumerate() {
        let own = format!("TagSpecification.{}", at + 1);
        form = form
            .with(format!("{own}.ResourceType"), resource)
            .with(format!("{own}.Tag.1.Key"), CLUSTER_TAG)
            .with(format!("{own}.Tag.1.Value"), &fleet.cluster)
            .with(format!("{own}.Tag.2.Key"), TOKEN_TAG)
            .with(format!("{own}.Tag.2.Value"), want.token.as_str());
    }
    form
}

/// Asks for all machines of a cluster that may cost money, or for those of one request.
#[must_use]
pub fn list(cluster: &str, token: Option<&NodeName>, page: Option<&str>) -> Form {
    let mut form = Form::of("DescribeInstances")
        .with("Filter.1.Name", format!("tag:{CLUSTER_TAG}"))
        .with("Filter.1.Value.1", cluster)
        .with("Filter.2.Name", "instance-state-name");
    let states = ["pending", "running", "shutting-down", "stopping", "stopped"];
    for (at, state) in states.into_iter().enumerate() {
        form = form.with(format!("Filter.2.Value.{}", at + 1), state);
    }
    if let Some(token) = token {
        form = form
            .with("Filter.3.Name", format!("tag:{TOKEN_TAG}"))
            .with("Filter.3.Value.1", token.as_str());
    }
    paged(form, page)
}

fn paged(form: Form, page: Option<&str>) -> Form {
    match page {
        Some(page) => form.with("NextToken", page),
        None => form,
    }
}

/// Ends a machine.
#[must_use]
pub fn release(id: &str) -> Form {
    Form::of("TerminateInstances").with("InstanceId.1", id)
}

/// An element of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    text: String,
    children: Vec<Self>,
}

impl Element {
    /// Reads an answer; nothing where it is no XML, or too deep.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut reader = Reader::from_str(text);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => {
                    if open.len() > DEEPEST {
                        return None;
                    }
                    let name = start.local_name();
                    open.push(Self {
                        name: String::from_utf8_lossy(name.as_ref()).into_owned(),
                        ..Self::default()
                    });
                }
                Event::Empty(start) => {
                    let name = start.local_name();
                    let own = Self {
                        name: String::from_utf8_lossy(name.as_ref()).into_owned(),
                        ..Self::default()
                    };
                    open.last_mut()?.children.push(own);
                }
                Event::End(_) => {
                    let own = open.pop()?;
                    open.last_mut()?.children.push(own);
                }
                Event::Text(words) => {
                    let words = String::from_utf8_lossy(&words);
                    open.last_mut()?.text.push_str(words.trim());
                }
                Event::Eof => break,
                _ => {}
            }
        }
        let root = open.pop()?;
        (open.is_empty() && root.children.len() == 1).then_some(())?;
        root.children.into_iter().next()
    }

    /// The first child of a name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// What stands along a path of names.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&str> {
        let mut own = self;
        for name in path {
            own = own.child(name)?;
        }
        Some(&own.text)
    }

    /// The items of a set; none where there is no such set.
    pub fn items<'a>(&'a self, set: &str) -> impl Iterator<Item = &'a Self> {
        let all = self.child(set).into_iter().flat_map(|set| &set.children);
        all.filter(|child| child.name == "item")
    }

    /// The token of the next page.
    #[must_use]
    pub fn next_page(&self) -> Option<&str> {
        self.at(&["nextToken"]).filter(|token| !token.is_empty())
    }
}

/// What a status and a body say that went wrong; nothing when the call succeeded.
#[must_use]
pub fn fault(call: &str, status: u16, body: &str) -> Option<ProviderError> {
    if (200..300).contains(&status) {
        return None;
    }
    let answer = Element::read(body);
    let error = answer.as_ref().and_then(|answer| {
        let errors = answer.child("Errors")?;
        errors.child("Error").cloned()
    });
    let code = error.as_ref().and_then(|error| error.at(&["Code"]));
    let said = error.as_ref().and_then(|error| error.at(&["Message"]));
    Some(match code {
        Some(code) if status < 500 => named(code, said.unwrap_or_default()),
        _ => unsure(
            call,
            &format!("status {status}: {}", code.unwrap_or("no code")),
        ),
    })
}

pub(super) fn unsure(call: &str, why: &str) -> ProviderError {
    ProviderError::Unsure {
        provider: AWS.into(),
        call: call.into(),
        why: why.into(),
    }
}

/// An error by the service's word for it.
#[must_use]
pub fn named(code: &str, said: &str) -> ProviderError {
    let (provider, why) = (AWS.to_owned(), format!("{code}: {said}"));
    match code {
        "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity"
        | "UnfulfillableCapacity"
        | "SpotMaxPriceTooLow"
        | "Unsupported" => ProviderError::NoCapacity { provider, why },
        "MaxSpotInstanceCountExceeded" | "InstanceLimitExceeded" | "VcpuLimitExceeded" => {
            ProviderError::Quota { provider, why }
        }
        "RequestLimitExceeded" | "Throttling" | "ThrottlingException" => {
            ProviderError::Throttled { provider, why }
        }
        "InternalError" | "InternalFailure" | "ServiceUnavailable" | "Unavailable" => {
            ProviderError::Unsure {
                provider,
                call: "a request".into(),
                why,
            }
        }
        _ => ProviderError::Refused { provider, why },
    }
}

/// Machines of an answer of DescribeInstances.
#[must_use]
pub fn machines(answer: &Element) -> Vec<Machine> {
    let reservations = answer.items("reservationSet");
    let instances = reservations.flat_map(|own| own.items("instancesSet"));
    instances
        .filter_map(|own| {
            let id = own.at(&["instanceId"])?.to_owned();
            let state = match own.at(&["instanceState", "name"])? {
                "pending" => MachineState::Starting,
                "running" => MachineState::Running,
                "terminated" => return None,
                _ => MachineState::Ending,
            };
            let token = own
                .items("tagSet")
                .find(|tag| tag.at(&["key"]) == Some(TOKEN_TAG))
                .and_then(|tag| NodeName::new(tag.at(&["value"])?).ok());
            Some(Machine {
                id,
                token,
                kind: match own.at(&["instanceLifecycle"]) {
                    Some("spot") => Kind::Spot,
                    _ => Kind::OnDemand,
                },
                state,
                node: None,
            })
        })
        .collect()
}

/// The machine of an answer of CreateFleet.
///
/// # Errors
/// What its set of errors says; unsure when it names neither a machine nor an error.
pub fn granted(answer: &Element, want: &Want) -> Result<Machine, ProviderError> {
    let id = answer
        .items("fleetInstanceSet")
        .flat_map(|own| own.items("instanceIds"))
        .map(|item| item.text.clone())
        .find(|id| !id.is_empty());
    if let Some(id) = id {
        return Ok(Machine {
            id,
            token: Some(want.token.clone()),
            kind: want.kind,
            state: MachineState::Starting,
            node: None,
        });
    }
    let error = answer.items("errorSet").next();
    let code = error.and_then(|error| error.at(&["errorCode"]));
    Err(match (error, code) {
        (Some(error), Some(code)) => named(code, error.at(&["errorMessage"]).unwrap_or_default()),
        _ => unsure("CreateFleet", "the answer names no machine and no error"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::Pool;

    fn want(kind: Kind) -> Want {
        Want {
            token: NodeName::new("m-1").expect("a name"),
            pool: Pool {
                provider: AWS.into(),
                region: "us-east-1".into(),
                zone: "us-east-1a".into(),
                machine: "g5.xlarge".into(),
            },
            kind,
        }
    }

    fn fleet() -> Fleet {
        Fleet {
            template: "spot mux".into(),
            types: vec!["g5.xlarge".into(), "g6.xlarge".into()],
            cluster: "local".into(),
        }
    }

    #[test]
    fn a_request_bears_its_token_and_its_tags() {
        let body = acquire(&fleet(), &want(Kind::Spot)).body();
        for part in [
            "Action=CreateFleet&Version=2016-11-15",
            "ClientToken=m-1",
            "LaunchTemplateName=spot%20mux",
            "Version=%24Latest",
            "Overrides.1.InstanceType=g5.xlarge",
            "Overrides.1.AvailabilityZone=us-east-1a",
            "DefaultTargetCapacityType=spot",
            "AllocationStrategy=capacity-optimized",
            "Tag.2.Key=spotmux-token&TagSpecification.1.Tag.2.Value=m-1",
        ] {
            assert!(body.contains(part), "{part} in {body}");
        }
        assert!(!body.contains("g6.xlarge"), "the pool names its type");
        let plain = acquire(&fleet(), &want(Kind::OnDemand)).body();
        assert!(plain.contains("on-demand") && !plain.contains("capacity-optimized"));
    }

    #[test]
    fn answers_are_read_and_errors_told_apart() {
        let made = "<CreateFleetResponse><fleetInstanceSet><item><instanceIds><item>i-07</item></instanceIds></item>\
                    </fleetInstanceSet><errorSet/></CreateFleetResponse>";
        let answer = Element::read(made).expect("it is XML");
        assert_eq!(
            granted(&answer, &want(Kind::Spot)).expect("made").id,
            "i-07"
        );
        let none = "<CreateFleetResponse><errorSet><item><errorCode>InsufficientInstanceCapacity</errorCode>\
                    <errorMessage>none</errorMessage></item></errorSet></CreateFleetResponse>";
        let answer = Element::read(none).expect("it is XML");
        assert!(matches!(
            granted(&answer, &want(Kind::Spot)),
            Err(ProviderError::NoCapacity { .. })
        ));
        let body = |code: &str| {
            format!(
                "<Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></Response>"
            )
        };
        let of = |status, code: &str| fault("CreateFleet", status, &body(code)).expect("an error");
        assert!(matches!(
            of(503, "RequestLimitExceeded"),
            ProviderError::Unsure { .. }
        ));
        assert!(matches!(
            of(400, "RequestLimitExceeded"),
            ProviderError::Throttled { .. }
        ));
        assert!(matches!(
            of(400, "VcpuLimitExceeded"),
            ProviderError::Quota { .. }
        ));
        assert!(matches!(
            of(403, "UnauthorizedOperation"),
            ProviderError::Refused { .. }
        ));
        assert!(!fault("x", 502, "<html>").expect("an error").is_certain());
        assert_eq!(fault("x", 200, ""), None);
        assert_eq!(Element::read("<a><b></a>"), None);
        assert_eq!(Element::read(&"<a>".repeat(40)), None);
    }

    #[test]
    fn machines_of_a_cluster_with_their_tokens() {
        let text = "<DescribeInstancesResponse><reservationSet><item><instancesSet>\
            <item><instanceId>i-1</instanceId><instanceState><name>running</name></instanceState>\
            <instanceLifecycle>spot</instanceLifecycle><tagSet><item><key>spotmux-token</key><value>m-1</value></item></tagSet></item>\
            <item><instanceId>i-2</instanceId><instanceState><name>shutting-down</name></instanceState></item>\
            <item><instanceId>i-3</instanceId><instanceState><name>terminated</name></instanceState></item>\
            </instancesSet></item></reservationSet><nextToken>more</nextToken></DescribeInstancesResponse>";
        let answer = Element::read(text).expect("it is XML");
        assert_eq!(answer.next_page(), Some("more"));
        let all = machines(&answer);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].token, Some(NodeName::new("m-1").expect("a name")));
        assert_eq!(
            (all[0].kind, all[0].state),
            (Kind::Spot, MachineState::Running)
        );
        assert_eq!(
            (all[1].kind, all[1].state),
            (Kind::OnDemand, MachineState::Ending)
        );
    }
}
