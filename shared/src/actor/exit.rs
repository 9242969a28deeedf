//! Why an actor or a thread ended; a panic is a reason like others, told to whoever owns it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// Somebody asked for it.
    Asked,
    /// It could not go on, and said why.
    Failed(String),
    /// It panicked, and said this.
    Panicked(String),
}

impl ExitReason {
    /// What a panic said.
    #[must_use]
    pub fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied());
        Self::Panicked(said.unwrap_or("without a word").to_owned())
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("was asked to end"),
            Self::Failed(reason) => f.write_str(reason),
            Self::Panicked(said) => write!(f, "panicked: {said}"),
        }
    }
}

/// Does some work; a panic in it comes back as a reason. What the work held is gone then, and must not be used again.
///
/// # Errors
/// [`ExitReason::Panicked`].
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, ExitReason> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| ExitReason::of_panic(&*payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_reason_with_its_words() {
        assert_eq!(caught(|| 7), Ok(7));
        let said = |reason: &str| Err::<(), _>(ExitReason::Panicked(reason.into()));
        assert_eq!(caught(|| panic!("a word")), said("a word"));
        assert_eq!(caught(|| panic!("{} words", 2)), said("2 words"));
        assert_eq!(caught(|| std::panic::panic_any(7)), said("without a word"));
    }
}
