//! A TCP proxy that can be slow, silent or gone, to put in front of any server.
//!
//! It moves bytes and knows nothing of what they mean. Every control returns when it has taken effect.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Redis;
use crate::support::{ports, wait};
use relay::{Order, Station, Weather};

mod relay;

/// Stands in front of one server until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    orders: Option<UnboundedSender<(Order, Sender<()>)>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts to forward connections to `server`, which need not be there yet.
    pub fn start(server: SocketAddr) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let (orders, inbox) = unbounded_channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(Station::new(address, server).run(inbox));
        });
        let proxy = Self { address, orders: Some(orders), thread: Some(thread) };
        proxy.order(Order::Listen(true));
        proxy
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every byte takes this much longer in each direction, from now on.
    pub fn delay(&self, to_server: Duration, to_client: Duration) {
        self.order(Order::Weather(Weather { to_server, to_client, silent: false }));
    }

    /// Connections are accepted and stay open, but nothing passes: what arrives is held until `restore`.
    pub fn blackhole(&self) {
        self.order(Order::Weather(Weather { silent: true, ..Weather::default() }));
    }

    /// Closes every open connection. New ones are welcome.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// New connections are refused, as when the server's host is up and the server is not. Open ones stay.
    pub fn refuse(&self) {
        self.order(Order::Listen(false));
    }

    /// Back to fair weather: no delay, nothing held, new connections accepted.
    pub fn restore(&self) {
        self.order(Order::Weather(Weather::default()));
        self.order(Order::Listen(true));
    }

    fn order(&self, order: Order) {
        let (done, obeyed) = std::sync::mpsc::channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send((order, done)).is_ok());
        assert!(sent && obeyed.recv().is_ok(), "the proxy on {} has died", self.address);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The thread ends when there is nobody left to give orders.
        self.orders = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the proxy's thread panicked");
    }
}

/// One PING through the proxy, with a limit to what a held answer may cost.
#[cfg(test)]
fn ping(proxy: &Proxy, limit: Duration) -> redis::RedisResult<String> {
    let client = redis::Client::open(format!("redis://{}/", proxy.address()))?;
    let mut connection = client.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    redis::cmd("PING").query(&mut connection)
}

#[test]
fn weather_changes_and_clears() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let long = wait::PATIENCE;
    let short = Duration::from_millis(50);
    ping(&proxy, long).expect("fair weather");

    // Slower than the caller's patience, one way at a time.
    proxy.delay(short * 20, Duration::ZERO);
    ping(&proxy, short).expect_err("the question arrives late");
    proxy.delay(Duration::ZERO, short * 20);
    ping(&proxy, short).expect_err("the answer arrives late");
    proxy.delay(short / 50, short / 50);
    ping(&proxy, long).expect("late, and within patience");

    proxy.blackhole();
    ping(&proxy, short).expect_err("nothing comes back");
    proxy.refuse();
    assert!(ping(&proxy, long).expect_err("nobody listens").is_connection_refusal());
    proxy.restore();
    ping(&proxy, long).expect("fair weather again");
}

#[test]
fn a_cut_closes_the_open_connections_and_no_others() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let client = redis::Client::open(format!("redis://{}/", proxy.address())).expect("a URL");
    let mut connection = client.get_connection().expect("fair weather");
    redis::cmd("PING").exec(&mut connection).expect("it is open");

    proxy.refuse();
    redis::cmd("PING").exec(&mut connection).expect("refusing leaves it open");
    proxy.cut();
    redis::cmd("PING").exec(&mut connection).expect_err("it is closed");
    proxy.restore();
    ping(&proxy, wait::PATIENCE).expect("new ones are welcome");
}
