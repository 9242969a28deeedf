//! Calls of libraries that can panic on what files hold: a panic in one becomes a message.
//!
//! What a process prints of panics is its own; [`is_contained`] tells its hook which it shall not print.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    /// Contained calls under way.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a panic of this thread now becomes an error of its caller.
#[must_use]
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

/// Runs a call; a panic in it becomes its message.
///
/// # Errors
/// The message.
pub(crate) fn contained<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    DEPTH.set(DEPTH.get() + 1);
    let ended = panic::catch_unwind(AssertUnwindSafe(call));
    DEPTH.set(DEPTH.get() - 1);
    ended.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        text.unwrap_or("no reason told").to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_known_as_contained_while_it_is_and_no_longer() {
        assert!(!is_contained());
        let inner = || contained::<()>(|| panic!("because of {}", 1));
        let seen = contained(|| (is_contained(), inner(), is_contained()));
        let told: Result<(), String> = Err("because of 1".to_owned());
        assert_eq!(seen, Ok((true, told, true)));
        assert!(!is_contained());
    }
}
