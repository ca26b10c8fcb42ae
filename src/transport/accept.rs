//! Taking connections from a listener, whatever the machine runs short of.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// After a failure that another try at once would only repeat, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The next connection. Answers are small and wanted at once, so nothing waits for more to send.
pub(super) async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => match stream.set_nodelay(true) {
                Ok(()) => return stream,
                // The peer has gone already.
                Err(_) => continue,
            },
            Err(error) => error,
        };
        if is_about_one_peer(error.kind()) {
            continue;
        }
        tracing::warn!(%error, "no connection can be accepted, trying again");
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_about_one_peer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}
