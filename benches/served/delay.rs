//! A network between service and Redis: every byte arrives so much later than it was sent.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::process::free_port;

/// Forwards to one server on this machine for as long as the process lives.
pub struct Delay {
    port: u16,
}

impl Delay {
    /// `each_way` is added in either direction.
    pub fn start(server: u16, each_way: Duration) -> Self {
        let port = free_port();
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
                ready.send(()).expect("somebody waits");
                forward_all(listener, server, each_way).await;
            });
        });
        is_ready.recv().expect("the thread lives");
        Self { port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

async fn forward_all(listener: TcpListener, server: u16, each_way: Duration) {
    while let Ok((near, _)) = listener.accept().await {
        let far = TcpStream::connect(("127.0.0.1", server)).await.expect("the server is there");
        near.set_nodelay(true).expect("a TCP option");
        far.set_nodelay(true).expect("a TCP option");
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::spawn(forward(near_in, far_out, each_way));
        tokio::spawn(forward(far_in, near_out, each_way));
    }
}

async fn forward(mut from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration) {
    let (sent, arriving) = mpsc::channel(1_024);
    tokio::spawn(deliver(arriving, to));
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if sent.send((Instant::now() + delay, buffer[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver(mut arriving: mpsc::Receiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) {
    let mut waiting = VecDeque::new();
    while let Some(first) = arriving.recv().await {
        waiting.push_back(first);
        while let Some((due, bytes)) = waiting.pop_front() {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            waiting.extend(std::iter::from_fn(|| arriving.try_recv().ok()));
        }
    }
}
