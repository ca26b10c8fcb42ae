//! Accepts connections from a listener, and goes on after errors.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// The pause after an error that an immediate retry would meet again, such as a lack of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Returns the next connection, with TCP_NODELAY: an answer is small and must not wait for more data.
pub(super) async fn next_connection(listener: &TcpListener) -> TcpStream {
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => match stream.set_nodelay(true) {
                Ok(()) => return stream,
                // The client has disconnected already.
                Err(_) => continue,
            },
            Err(error) => error,
        };
        if is_error_of_one_client(error.kind()) {
            continue;
        }
        tracing::warn!(%error, "no connection can be accepted, retrying");
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn is_error_of_one_client(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}
