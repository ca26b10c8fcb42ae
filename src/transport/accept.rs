//! Accepts connections from a listener, and goes on after errors.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::admission::Admission;
use crate::telemetry::metrics::CloseReason;

/// The pause after an error that an immediate retry would meet again, such as a lack of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Returns the next connection and the address of its client. Sets TCP_NODELAY: an answer is small and must not wait
/// for more data.
pub(super) async fn next_connection(listener: &TcpListener, admission: &Admission) -> (TcpStream, IpAddr) {
    until_accepted(admission, async || {
        let (stream, client) = listener.accept().await?;
        // Fails when the client has disconnected already.
        stream.set_nodelay(true).map_err(|_| ErrorKind::ConnectionAborted)?;
        Ok((stream, client.ip()))
    })
    .await
}

/// Returns the next connection of a Unix socket. Its clients count as one address.
pub(super) async fn next_unix_connection(
    listener: &UnixListener,
    admission: &Admission,
) -> (UnixStream, IpAddr) {
    let accept = async || listener.accept().await.map(|(stream, _)| (stream, Ipv4Addr::LOCALHOST.into()));
    until_accepted(admission, accept).await
}

async fn until_accepted<S>(admission: &Admission, accept: impl AsyncFn() -> io::Result<S>) -> S {
    loop {
        let error = match accept().await {
            Ok(accepted) => return accepted,
            Err(error) => error,
        };
        if is_error_of_one_client(error.kind()) {
            continue;
        }
        admission.record(CloseReason::Accept, Some(&error));
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn is_error_of_one_client(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}
