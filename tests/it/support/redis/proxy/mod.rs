//! A TCP proxy in front of a server that simulates slow, silent and refused connections.
//!
//! It copies bytes and does not parse them. Every method returns when its change is in effect.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Redis;
use crate::support::{ports, wait};
use relay::{Conditions, Control, Relay, Silence};

mod relay;

/// Forwards connections to one server until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    controls: Option<UnboundedSender<(Control, Sender<()>)>>,
    accepted: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Forwards connections to `server`, which may start later.
    pub fn start(server: SocketAddr) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let (controls, inbox) = unbounded_channel();
        let accepted = Arc::default();
        let relay = Relay::new(address, server, Arc::clone(&accepted));
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(relay.run(inbox));
        });
        let proxy = Self { address, controls: Some(controls), accepted, thread: Some(thread) };
        proxy.control(Control::Listen(true));
        proxy
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections that were accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Delays every byte by these times, from now on.
    pub fn delay(&self, to_server: Duration, to_client: Duration) {
        self.control(Control::Conditions(Conditions { to_server, to_client, ..Conditions::default() }));
    }

    /// Accepts connections and keeps them open, but holds all bytes until `restore`.
    pub fn blackhole(&self) {
        self.control(Control::Conditions(Conditions { silent: Silence::Both, ..Conditions::default() }));
    }

    /// Holds the answers until `restore`. Requests arrive.
    pub fn hold_answers(&self) {
        self.control(Control::Conditions(Conditions { silent: Silence::Answers, ..Conditions::default() }));
    }

    /// Closes every open connection. New connections are accepted.
    pub fn cut(&self) {
        self.control(Control::Cut);
    }

    /// Refuses new connections, as a host without the server does. Open connections stay open.
    pub fn refuse(&self) {
        self.control(Control::Listen(false));
    }

    /// Ends every simulated fault: no delay, no held bytes, new connections accepted.
    pub fn restore(&self) {
        self.control(Control::Conditions(Conditions::default()));
        self.control(Control::Listen(true));
    }

    fn control(&self, control: Control) {
        let (done, applied) = std::sync::mpsc::channel();
        let sent = self.controls.as_ref().is_some_and(|controls| controls.send((control, done)).is_ok());
        assert!(sent && applied.recv().is_ok(), "the proxy on {} has died", self.address);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The thread ends when the sender of the controls is dropped.
        self.controls = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the proxy's thread panicked");
    }
}

/// One PING through the proxy, with `limit` as its timeout.
#[cfg(test)]
fn ping(proxy: &Proxy, limit: Duration) -> redis::RedisResult<String> {
    let client = redis::Client::open(format!("redis://{}/", proxy.address()))?;
    let mut connection = client.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    redis::cmd("PING").query(&mut connection)
}

#[test]
fn faults_begin_and_end() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let long = wait::PATIENCE;
    let short = Duration::from_millis(50);
    ping(&proxy, long).expect("no fault yet");

    // A delay above the timeout, in one direction at a time.
    proxy.delay(short * 20, Duration::ZERO);
    ping(&proxy, short).expect_err("the request arrives late");
    proxy.delay(Duration::ZERO, short * 20);
    ping(&proxy, short).expect_err("the answer arrives late");
    proxy.delay(short / 50, short / 50);
    ping(&proxy, long).expect("late, but within the timeout");

    proxy.blackhole();
    ping(&proxy, short).expect_err("nothing comes back");
    proxy.hold_answers();
    ping(&proxy, short).expect_err("no answer comes back");
    proxy.refuse();
    assert!(ping(&proxy, long).expect_err("the port is closed").is_connection_refusal());
    proxy.restore();
    ping(&proxy, long).expect("no fault any more");
}

#[test]
fn a_cut_closes_only_the_open_connections() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let client = redis::Client::open(format!("redis://{}/", proxy.address())).expect("a URL");
    let mut connection = client.get_connection().expect("no fault yet");
    redis::cmd("PING").exec(&mut connection).expect("it is open");

    proxy.refuse();
    redis::cmd("PING").exec(&mut connection).expect("refusing leaves it open");
    proxy.cut();
    redis::cmd("PING").exec(&mut connection).expect_err("it is closed");
    proxy.restore();
    ping(&proxy, wait::PATIENCE).expect("new connections are accepted");
    assert_eq!(proxy.accepted(), 2);
}
