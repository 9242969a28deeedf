//! What one kind of device takes for each operation: a versioned file of curves that planning goes by.
//!
//! JSON, no key twice, no unknown key. Times are nanoseconds, sizes are bytes, curves are `[[size, value], ...]` with
//! strictly growing sizes (see [`Curve`] for what is between and outside). Optional tables may be empty.
//!
//! ```json
//! {
//!   "format": "spotmux-profile", "version": 1,
//!   "device": "NVIDIA A40", "compute": "bf16",
//!   "origin": "measured", "note": "who measured it, with what, how often",
//!   "memory_bytes": 48305799168, "workspace_bytes": 1073741824,
//!   "roofline": {
//!     "flops_per_second": 149700000000000, "bytes_per_second": 696000000000,
//!     "compute_permille": 650, "memory_permille": 800, "launch_nanos": 5000
//!   },
//!   "linear": [
//!     { "out": 4096, "input": 4096, "weights": "bf16", "forward": [[16, 61000], [2048, 760000]],
//!       "backward": [[16, 61500], [2048, 765000]] }
//!   ],
//!   "attention": [
//!     { "heads": 32, "kv_heads": 32, "head_dim": 128, "length": 512, "forward": [[512, 30000], [8192, 410000]],
//!       "backward": [[512, 75000], [8192, 1020000]] }
//!   ],
//!   "adapters": [
//!     { "method": "lora", "width": 16, "out": 4096, "input": 4096, "forward": [[16, 11000], [8192, 160000]],
//!       "backward": [[16, 25000], [8192, 390000]], "utilisation": [[16, 80], [8192, 900]] }
//!   ],
//!   "stream": [[1048576, 7000], [1073741824, 1930000]],
//!   "links": [ { "name": "nvlink", "latency_nanos": 9000, "bytes_per_second": 50000000000 } ],
//!   "reconfiguration": {
//!     "attach_nanos": 20000000, "switch_nanos": 2000000000, "load_bytes_per_second": 2000000000
//!   }
//! }
//! ```
//!
//! | key | what is measured |
//! | --- | --- |
//! | `linear` | `(tokens, input) x (input, out)`: forward the product, backward the gradient of the input alone; the head is the one with `out` = vocabulary. `weights`: f32, bf16, f16, q8, q4 |
//! | `attention` | causal attention of so many tokens in all, as sequences of `length` each; backward gives the gradients of q, k and v |
//! | `adapters` | what one job's adapter adds to a layer of this shape: forward, and backward with the gradients of its weights. `width` is the rank (lora), the bottleneck's size, else 1. `method` as in a job |
//! | `utilisation` | permille of the device that this kernel keeps busy (occupied multiprocessors): what is left, another job's can have |
//! | `stream` | a kernel bound by memory that reads and writes so many bytes together: norms, activations, optimizer |
//! | `links` | one transfer of n bytes takes `latency + n / rate` |
//! | `reconfiguration` | attaching an adapter; changing from one plan to the next; loading layers |
//!
//! What the tables lack is computed by `roofline`: `launch + max(operations / (flops x compute), bytes / (rate x
//! memory))` with the two permille as what is reached of the peaks. Without a roofline such an operation is refused
//! by its key. [`Profile::peak`] makes a profile from published figures alone, and says so in `origin`.

mod assemble;
mod peak;
pub mod processor;
mod read;
pub(crate) mod roofline;

use serde::{Deserialize, Serialize};

use super::curve::{Curve, Points};
pub use assemble::{Product, Samples};
pub use peak::Peak;
pub use read::BadProfile;
pub use roofline::Roofline;

/// The text in `format`.
pub const FORMAT: &str = "spotmux-profile";
/// The newest version, and so far the only one.
pub const VERSION: u32 = 1;

/// How backbone weights are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// 32 bits.
    F32,
    /// 16 bits, range of f32.
    Bf16,
    /// 16 bits.
    F16,
    /// Blocks of 32 with a 16-bit scale: 8.5 bits.
    Q8,
    /// Blocks of 32 with a 16-bit scale, or of 64 with a 32-bit one: 4.5 bits.
    Q4,
}

impl Weights {
    /// Bytes of so many values.
    #[must_use]
    pub const fn bytes(self, values: u64) -> u64 {
        let half_bits = match self {
            Self::F32 => 64,
            Self::Bf16 | Self::F16 => 32,
            Self::Q8 => 17,
            Self::Q4 => 9,
        };
        (values.saturating_mul(half_bits)).div_ceil(16)
    }

    /// The word in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
        }
    }
}

/// In what activations and adapters are computed and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value.
    Bf16,
}

impl Compute {
    /// Bytes of one value.
    #[must_use]
    pub const fn width(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Where the figures are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// From a device.
    Measured,
    /// From published peak figures.
    Computed,
}

/// A linear layer by its shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Rows of the weight.
    pub out: u64,
    /// Columns of the weight.
    pub input: u64,
    /// How the weight is kept.
    pub weights: Weights,
    /// Nanoseconds by tokens.
    pub forward: Points,
    /// Nanoseconds by tokens.
    pub backward: Points,
}

/// Attention over sequences of one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Tokens of each sequence.
    pub length: u64,
    /// Nanoseconds by tokens of all sequences.
    pub forward: Points,
    /// Nanoseconds by tokens of all sequences.
    pub backward: Points,
}

/// An adapter at a linear layer of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// As in a job: lora, ia3, bottleneck, prefix, prompt, bitfit, diff.
    pub method: String,
    /// Rank or inner size; 1 where there is none.
    pub width: u64,
    /// Rows of the weight it is at.
    pub out: u64,
    /// Columns of the weight it is at.
    pub input: u64,
    /// Nanoseconds by tokens.
    pub forward: Points,
    /// Nanoseconds by tokens.
    pub backward: Points,
    /// Permille of the device kept busy, by tokens.
    pub utilisation: Points,
}

/// A way between two devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// For people.
    pub name: String,
    /// Before the first byte arrives.
    pub latency_nanos: u64,
    /// After it.
    pub bytes_per_second: u64,
}

impl Link {
    /// Where nobody measured: 10 Gbit/s and 200 us.
    #[must_use]
    pub fn assumed() -> Self {
        Self {
            name: "between".into(),
            latency_nanos: 200_000,
            bytes_per_second: 1_250_000_000,
        }
    }

    /// Time of one transfer in nanoseconds.
    #[must_use]
    pub fn nanos(&self, bytes: u64) -> u64 {
        let transfer =
            (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.bytes_per_second.max(1)));
        self.latency_nanos
            .saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX))
    }
}

/// What changing a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconfiguration {
    /// Attaching an adapter to a standing backbone.
    pub attach_nanos: u64,
    /// Draining a pipeline and agreeing on the next plan.
    pub switch_nanos: u64,
    /// Reading layers into a device.
    pub load_bytes_per_second: u64,
}

impl Reconfiguration {
    /// Nanoseconds until a stage of so many bytes computes somewhere else.
    #[must_use]
    pub fn move_nanos(&self, bytes: u64) -> u64 {
        let load =
            u128::from(bytes) * 1_000_000_000 / u128::from(self.load_bytes_per_second.max(1));
        self.switch_nanos
            .saturating_add(u64::try_from(load).unwrap_or(u64::MAX))
    }
}

/// One kind of device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The device, as nodes name it.
    pub device: String,
    /// In what it computes.
    pub compute: Compute,
    /// Where the figures are from.
    pub origin: Origin,
    /// How they were got.
    #[serde(default)]
    pub note: String,
    /// Memory of the device.
    pub memory_bytes: u64,
    /// What the driver, libraries and the allocator's slack take of it.
    pub workspace_bytes: u64,
    /// For what the tables lack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
    /// Linear layers.
    #[serde(default)]
    pub linear: Vec<Linear>,
    /// Attention.
    #[serde(default)]
    pub attention: Vec<Attention>,
    /// Adapters.
    #[serde(default)]
    pub adapters: Vec<Adapter>,
    /// Nanoseconds of a memory-bound kernel by bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stream: Points,
    /// Ways to other devices.
    #[serde(default)]
    pub links: Vec<Link>,
    /// What changing a plan takes.
    pub reconfiguration: Reconfiguration,
}

impl Profile {
    /// A link by its name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The curve of a memory-bound kernel, by bytes.
    ///
    /// # Errors
    /// [`BadProfile::Unmeasured`] when there is neither a table nor a roofline.
    pub fn stream(&self) -> Result<Curve, BadProfile> {
        match (&self.stream[..], &self.roofline) {
            ([], None) => Err(BadProfile::Unmeasured {
                device: self.device.clone(),
                key: "stream".into(),
            }),
            ([], Some(roofline)) => Ok(roofline.stream()),
            (points, _) => Curve::new(points).map_err(|reason| BadProfile::Curve {
                key: "stream".into(),
                reason,
            }),
        }
    }
}
