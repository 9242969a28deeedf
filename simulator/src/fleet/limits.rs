//! How much is simulated at most: what is more is refused with the limit, before anything is drawn or read on.

use coordinator::plan::bounds::OutOfBounds;
use coordinator::plan::place::NoPlace;
use thiserror::Error;

use super::Setting;

/// Jobs that come. An event of a job takes some ten microseconds a system, and milliseconds where it meets new company.
pub const JOBS: u64 = 250_000;
/// Losses of instances.
pub const LOSSES: u64 = 1_000_000;
/// GPUs times hours: the state of every instance is kept for each hour.
pub const GPU_HOURS: u64 = 1 << 24;
/// Seconds of any instant or length in a trace: thirty years.
pub const SECONDS: u64 = 1_000_000_000;

/// Why nothing is simulated.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadSetting {
    /// No instance comes together.
    #[error(
        "an instance of {width} GPUs does not come together of {gpus}: lower --width or raise --gpus"
    )]
    NoInstance {
        /// GPUs to an instance.
        width: usize,
        /// GPUs in all.
        gpus: usize,
    },
    /// More than is simulated.
    #[error("{found} {what} are more than the {most} that are simulated: {remedy}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// The limit.
        most: u64,
        /// What to lower.
        remedy: &'static str,
    },
    /// The backbone fits no instance, or a profile lacks something.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
}

impl From<OutOfBounds> for BadSetting {
    fn from(error: OutOfBounds) -> Self {
        Self::NoPlace(error.into())
    }
}

/// Refuses a number above its limit.
///
/// # Errors
/// [`BadSetting::TooMuch`].
pub(super) fn within(
    what: &'static str,
    found: u64,
    most: u64,
    remedy: &'static str,
) -> Result<(), BadSetting> {
    if found <= most {
        return Ok(());
    }
    Err(BadSetting::TooMuch {
        what,
        found,
        most,
        remedy,
    })
}

impl Setting {
    /// Checks that it can be simulated.
    ///
    /// # Errors
    /// [`BadSetting`] with the limit and what to lower.
    pub fn check(&self, jobs: usize) -> Result<(), BadSetting> {
        let width = self.width.unwrap_or(1);
        if width == 0 || width > self.gpus {
            let gpus = self.gpus;
            return Err(BadSetting::NoInstance { width, gpus });
        }
        within(
            "jobs",
            jobs as u64,
            JOBS,
            "lower --jobs-per-hour or --hours",
        )?;
        let hours = self.horizon_s.div_ceil(3_600);
        let gpu_hours = (self.gpus as u64).saturating_mul(hours);
        within("GPU hours", gpu_hours, GPU_HOURS, "lower --gpus or --hours")?;
        let losses = gpu_hours.saturating_mul(self.losses.per_kilohour) / 1_000;
        within(
            "losses",
            losses,
            LOSSES,
            "lower --losses, --gpus or --hours",
        )
    }
}
