//! The EC2 query API in words: what is asked for ([`super::form`]), what answers say ([`super::element`]), what refusals mean
//! ([`super::refusal`]). Pure.
//!
//! Version 2016-11-15 of the API. Five calls are used: DescribeSpotPriceHistory, CreateFleet (type instant), DescribeInstances,
//! TerminateInstances, and nothing that changes anything else.

use shared::ids::NodeName;

use super::element::Element;
use super::refusal::{named, unsure};
use crate::provider::{Kind, Machine, MachineState, ProviderError, Want};

/// Tag of all machines of a cluster; its value is what [`crate::provider::known_as`] says.
pub const CLUSTER_TAG: &str = "spotmux-cluster";
/// Tag of the request that a machine came of; the machine reads its node's name from it.
pub const TOKEN_TAG: &str = "spotmux-token";

/// What machines are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Name of the launch template: image, key, user data that starts a gpu-actor.
    pub template: String,
    /// Types that will do.
    pub types: Vec<String>,
    /// The cluster, as [`crate::provider::known_as`] tells it apart.
    pub cluster: String,
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
        .map(|item| item.text().to_owned())
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
    use super::super::form::acquire;
    use super::super::refusal::{AWS, fault};
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
