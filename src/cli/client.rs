//! Shared code of the sub-commands that call a running service.

use std::error::Error;
use std::future::Future;
use std::io;

/// Runs a client on this thread.
pub(super) fn block_on<T>(client: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(client))
}

/// The innermost cause of an error: `transport error` alone does not help.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
