//! The proxy's thread: its listener, its open connections, and the network conditions that it simulates.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pieces in flight in one direction of one connection.
const IN_FLIGHT: usize = 1024;

/// What happens to the bytes of the connections.
#[derive(Clone, Copy, Default)]
pub struct Conditions {
    pub to_server: Duration,
    pub to_client: Duration,
    pub silent: Silence,
}

/// Where nothing arrives, although connections stay open.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Silence {
    #[default]
    None,
    Answers,
    Both,
}

/// The commands of the test.
pub enum Control {
    Conditions(Conditions),
    Cut,
    Listen(bool),
}

/// The listener and the open connections.
pub struct Relay {
    address: SocketAddr,
    server: SocketAddr,
    listener: Option<TcpListener>,
    connections: JoinSet<io::Result<()>>,
    conditions: watch::Sender<Conditions>,
    accepted: Arc<AtomicUsize>,
}

impl Relay {
    /// A relay that counts in `accepted` the connections that it accepts.
    pub fn new(address: SocketAddr, server: SocketAddr, accepted: Arc<AtomicUsize>) -> Self {
        let (conditions, _) = watch::channel(Conditions::default());
        Self { address, server, listener: None, connections: JoinSet::new(), conditions, accepted }
    }

    pub async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<(Control, Sender<()>)>) {
        loop {
            tokio::select! {
                control = inbox.recv() => {
                    let Some((control, done)) = control else { return };
                    self.apply(control).await;
                    // The test waits for this. The send fails only if the test has panicked.
                    let _ = done.send(());
                }
                Ok((client, _)) = accept(self.listener.as_ref()) => {
                    self.accepted.fetch_add(1, Ordering::Relaxed);
                    self.connections.spawn(connect(client, self.server, self.conditions.subscribe()));
                }
                // Both ends see the end of a connection: nothing to report here.
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    async fn apply(&mut self, control: Control) {
        match control {
            Control::Conditions(conditions) => {
                self.conditions.send_replace(conditions);
            }
            Control::Cut => self.connections.shutdown().await,
            Control::Listen(false) => self.listener = None,
            Control::Listen(true) if self.listener.is_some() => {}
            Control::Listen(true) => {
                self.listener =
                    Some(TcpListener::bind(self.address).await.expect("the proxy's port is free"));
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Runs until one end closes the connection. Dropping the future closes both.
async fn connect(
    client: TcpStream,
    server: SocketAddr,
    mut conditions: watch::Receiver<Conditions>,
) -> io::Result<()> {
    // While the proxy is silent, the server does not see new connections either.
    let _ = conditions.wait_for(|conditions| conditions.silent != Silence::Both).await;
    let upstream = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    tokio::try_join!(
        pump(from_client, to_server, conditions.clone(), |conditions| {
            (conditions.to_server, conditions.silent == Silence::Both)
        }),
        pump(from_server, to_client, conditions.clone(), |conditions| {
            (conditions.to_client, conditions.silent != Silence::None)
        }),
    )?;
    Ok(())
}

/// Copies bytes in one direction. It reads and writes concurrently: a delay adds latency and keeps the bandwidth.
async fn pump(
    mut source: impl AsyncRead + Unpin,
    mut sink: impl AsyncWrite + Unpin,
    mut conditions: watch::Receiver<Conditions>,
    // The delay, and whether bytes are held.
    fault: impl Fn(&Conditions) -> (Duration, bool) + Copy,
) -> io::Result<()> {
    let (pieces, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let departures = conditions.clone();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = source.read(&mut buffer).await?;
            let arrival = Instant::now() + fault(&departures.borrow()).0;
            if length == 0 || pieces.send((arrival, buffer[..length].to_vec())).await.is_err() {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let write = async {
        while let Some((arrival, piece)) = due.recv().await {
            tokio::time::sleep_until(arrival).await;
            let _ = conditions.wait_for(|conditions| !fault(conditions).1).await;
            sink.write_all(&piece).await?;
        }
        sink.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}
