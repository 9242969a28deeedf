//! Requests of EC2 as forms.

use shared::ids::NodeName;

use super::words::{CLUSTER_TAG, Fleet, TOKEN_TAG};
use crate::provider::{Kind, Want};

/// Version of the API.
const VERSION: &str = "2016-11-15";

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
