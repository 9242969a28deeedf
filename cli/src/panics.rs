//! What is told of a panic: nothing of one that becomes an error of its caller, else what the system's own report says.

use std::panic;

use data::contained;

/// Tells no panic of a library that is contained: the error that it becomes is told.
pub(crate) fn tell_uncontained() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !contained::is_contained() {
            report(panic);
        }
    }));
}
