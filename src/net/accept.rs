//! Listens on an address, and accepts connections: goes on after errors.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use super::admission::Admission;
use crate::telemetry::metrics::CloseReason;

/// The pause after an error that an immediate retry would meet again, such as a lack of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Connections that wait to be accepted. The system has a limit of its own (`net.core.somaxconn`).
pub(super) const BACKLOG: u32 = 1_024;

/// How the TCP ports are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenOptions {
    /// Whether another process of the same user may bind the same address, if it asks for the same (`SO_REUSEPORT`).
    pub reuse_port: bool,
}

/// Listens on a TCP address.
///
/// # Errors
/// When the address is in use, or the system refuses it.
pub fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
    match bind(address, options) {
        // A system without IPv6 has no `[::]`, which stands for every address.
        Err(error) if is_without_ipv6(&error) && address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()), options)
        }
        bound => bound,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL];
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A port whose last connections are in TIME_WAIT can be bound: a restart does not wait for them.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(options.reuse_port)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: ListenOptions = ListenOptions { reuse_port: false };
    const SHARED: ListenOptions = ListenOptions { reuse_port: true };

    fn on_free_port(options: ListenOptions) -> (TcpListener, SocketAddr) {
        let listener = listen("127.0.0.1:0".parse().expect("an address"), options).expect("a free port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    #[tokio::test]
    async fn an_address_is_shared_only_if_both_listeners_ask_for_it() {
        let (_alone, address) = on_free_port(ALONE);
        let (_shared, shared_address) = on_free_port(SHARED);
        for (address, options) in [(address, ALONE), (address, SHARED), (shared_address, ALONE)] {
            let error = listen(address, options).expect_err("the port is taken");
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
        }
        listen(shared_address, SHARED).expect("both ask for it");
    }

    #[tokio::test]
    async fn hundreds_of_connections_wait_to_be_accepted() {
        let (_listener, address) = on_free_port(ALONE);
        let connect = |_| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1));
        let waiting: Vec<_> = (0..300).map(connect).collect();
        assert_eq!(waiting.iter().position(Result::is_err), None, "of 300");
    }
}
