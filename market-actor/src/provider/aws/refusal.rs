//! What EC2 says when it does not do it.

use super::element::Element;
use crate::provider::ProviderError;

/// The provider's name.
pub(super) const AWS: &str = "aws";

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
