//! Accepts connections from a listener, and goes on after errors.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The pause after an error that an immediate retry would meet again, such as a lack of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Returns the next connection, with TCP_NODELAY: an answer is small and must not wait for more data.
pub(super) async fn next_connection(listener: &TcpListener) -> TcpStream {
    until_accepted(async || {
        let (stream, _) = listener.accept().await?;
        // Fails when the client has disconnected already.
        stream.set_nodelay(true).map_err(|_| ErrorKind::ConnectionAborted)?;
        Ok(stream)
    })
    .await
}

/// Returns the next connection of a Unix socket.
pub(super) async fn next_unix_connection(listener: &UnixListener) -> UnixStream {
    until_accepted(async || listener.accept().await.map(|(stream, _)| stream)).await
}

async fn until_accepted<S>(accept: impl AsyncFn() -> io::Result<S>) -> S {
    loop {
        let error = match accept().await {
            Ok(stream) => return stream,
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
