//! The proxy's own thread: its listener, its open connections and the weather they live in.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many pieces may be on their way in one direction of one connection.
const IN_FLIGHT: usize = 1024;

/// What happens to the bytes of the connections.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub to_server: Duration,
    pub to_client: Duration,
    /// Connections stay open, and nothing arrives on either side.
    pub silent: bool,
}

/// What the proxy's owner may ask for.
pub enum Order {
    Weather(Weather),
    Cut,
    Listen(bool),
}

/// The listener and the open connections.
pub struct Station {
    address: SocketAddr,
    server: SocketAddr,
    listener: Option<TcpListener>,
    connections: JoinSet<io::Result<()>>,
    weather: watch::Sender<Weather>,
}

impl Station {
    pub fn new(address: SocketAddr, server: SocketAddr) -> Self {
        let (weather, _) = watch::channel(Weather::default());
        Self { address, server, listener: None, connections: JoinSet::new(), weather }
    }

    pub async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<(Order, Sender<()>)>) {
        loop {
            tokio::select! {
                order = inbox.recv() => {
                    let Some((order, done)) = order else { return };
                    self.obey(order).await;
                    // Who gave the order waits for this; it can only be gone when its test has failed.
                    let _ = done.send(());
                }
                Ok((client, _)) = accept(self.listener.as_ref()) => {
                    self.connections.spawn(connect(client, self.server, self.weather.subscribe()));
                }
                // A connection that ended, in whatever way, has been felt by both its ends.
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Weather(weather) => {
                self.weather.send_replace(weather);
            }
            Order::Cut => self.connections.shutdown().await,
            Order::Listen(false) => self.listener = None,
            Order::Listen(true) if self.listener.is_some() => {}
            Order::Listen(true) => {
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

/// Lives as long as both ends keep the connection; dropping it closes both.
async fn connect(
    client: TcpStream,
    server: SocketAddr,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    // In silence not even the server hears of a new connection.
    let _ = weather.wait_for(|weather| !weather.silent).await;
    let upstream = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    tokio::try_join!(
        pump(from_client, to_server, weather.clone(), |weather| weather.to_server),
        pump(from_server, to_client, weather.clone(), |weather| weather.to_client),
    )?;
    Ok(())
}

/// Moves bytes in one direction. Reading and writing are apart, so that a delay adds latency and takes no bandwidth.
async fn pump(
    mut source: impl AsyncRead + Unpin,
    mut sink: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
    delay: impl Fn(&Weather) -> Duration,
) -> io::Result<()> {
    let (pieces, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let departures = weather.clone();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = source.read(&mut buffer).await?;
            let arrival = Instant::now() + delay(&departures.borrow());
            if length == 0 || pieces.send((arrival, buffer[..length].to_vec())).await.is_err() {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let write = async {
        while let Some((arrival, piece)) = due.recv().await {
            tokio::time::sleep_until(arrival).await;
            let _ = weather.wait_for(|weather| !weather.silent).await;
            sink.write_all(&piece).await?;
        }
        sink.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}
