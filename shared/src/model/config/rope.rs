//! Rotary positions, in the older style (`rope_theta` and `rope_scaling`) and the newer (`rope_parameters`).

use serde_json::{Map, Value};

use super::fields::Fields;
use super::{ConfigError, limits};
use crate::model::{Rope, RopeScaling};

/// Base of a configuration that does not mention one.
const DEFAULT_THETA: f64 = 10_000.0;
/// Largest base and factor accepted.
const LARGEST: f64 = 1e12;
const CONFLICT: &str = "contradicts rope_parameters: keep one of them";

/// Reads whichever style a configuration has; with both, they must agree.
pub(super) fn read(fields: &Fields<'_>) -> Result<Rope, ConfigError> {
    let theta = fields.number_between("rope_theta", 1.0, LARGEST)?;
    let older = fields.map("rope_scaling")?;
    let Some(newer) = fields.map("rope_parameters")? else {
        return Ok(Rope {
            theta: theta.unwrap_or(DEFAULT_THETA),
            scaling: scaling("rope_scaling", older)?,
        });
    };
    let inner = Fields::new(newer, "rope_parameters");
    let inner_theta = inner.number_between("rope_theta", 1.0, LARGEST)?;
    if let (Some(outer), Some(inner)) = (theta, inner_theta)
        && outer != inner
    {
        return Err(fields.inconsistent("rope_theta", CONFLICT.into()));
    }
    let scaling_newer = scaling("rope_parameters", Some(newer))?;
    if older.is_some() && scaling("rope_scaling", older)? != scaling_newer {
        return Err(fields.inconsistent("rope_scaling", CONFLICT.into()));
    }
    Ok(Rope {
        theta: inner_theta.or(theta).unwrap_or(DEFAULT_THETA),
        scaling: scaling_newer,
    })
}

fn scaling(path: &str, map: Option<&Map<String, Value>>) -> Result<RopeScaling, ConfigError> {
    let Some(map) = map else {
        return Ok(RopeScaling::Default);
    };
    let fields = Fields::new(map, path);
    if let Some(value) = fields.get("partial_rotary_factor")
        && value.as_f64() != Some(1.0)
    {
        return Err(fields.unsupported("partial_rotary_factor", &value.to_string(), "1"));
    }
    if let Some(kind) = ["full_attention", "sliding_attention"]
        .into_iter()
        .find(|kind| fields.mentions(kind))
    {
        return Err(fields.unsupported(kind, "given", "one set of values for all layers"));
    }
    let key = if fields.mentions("rope_type") {
        "rope_type"
    } else {
        "type"
    };
    match fields.text(key)? {
        // The newer style may hold the base alone.
        None if path == "rope_parameters" => Ok(RopeScaling::Default),
        None => Err(fields.missing("rope_type")),
        Some("default") => Ok(RopeScaling::Default),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: factor(&fields)?,
        }),
        Some("llama3") => llama3(&fields),
        Some(other) => Err(fields.unsupported(
            key,
            &format!("{other:?}"),
            "\"default\", \"linear\" or \"llama3\"",
        )),
    }
}

fn llama3(fields: &Fields<'_>) -> Result<RopeScaling, ConfigError> {
    let low_freq_factor = positive(fields, "low_freq_factor")?;
    let high_freq_factor = positive(fields, "high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        return Err(fields.inconsistent(
            "high_freq_factor",
            format!("{high_freq_factor} is not above low_freq_factor {low_freq_factor}"),
        ));
    }
    Ok(RopeScaling::Llama3 {
        factor: factor(fields)?,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings: fields
            .required_size("original_max_position_embeddings", limits::POSITIONS)?,
    })
}

/// A divisor of frequencies, at least 1.
fn factor(fields: &Fields<'_>) -> Result<f64, ConfigError> {
    let factor = positive(fields, "factor")?;
    if factor < 1.0 {
        return Err(fields.out_of_range("factor", &Value::from(factor), "at least 1".into()));
    }
    Ok(factor)
}

fn positive(fields: &Fields<'_>, key: &str) -> Result<f64, ConfigError> {
    fields
        .number_between(key, 0.0, LARGEST)?
        .ok_or_else(|| fields.missing(key))
}
