//! Panics of background threads and tasks. A runtime catches them, so they would go unnoticed in tests; libFuzzer ends
//! with the first one.

use std::cell::Cell;
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

static HOOK: Once = Once::new();
static FIRST: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    /// Whether this thread runs a target. Its panics need no record.
    static RUNS_A_TARGET: Cell<bool> = const { Cell::new(false) };
}

/// Starts to record panics of all threads but those that call this function.
pub fn watch() {
    RUNS_A_TARGET.set(true);
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !RUNS_A_TARGET.get() {
                first().get_or_insert_with(|| panic.to_string());
            }
            report(panic);
        }));
    });
}

fn first() -> std::sync::MutexGuard<'static, Option<String>> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics if a background thread did.
pub fn assert_none() {
    let first = first().clone();
    assert_eq!(first, None, "a task of the service panicked");
}
