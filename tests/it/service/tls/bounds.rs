//! Handshakes that are not finished: what they cannot take from the rest of the service.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::rustls::ClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;

use super::protocol::{ENVOY_GATEWAY, made_by_openssl};
use super::{Site, expect_answer, handshakes, plan, with_certificate};
use crate::support::certificates::Authority;
use crate::support::grpc::Rls;
use crate::support::http;
use crate::support::process::Ratelimitd;
use crate::support::tls::{SERVER_NAME, client};
use crate::support::wait;

async fn connect(from: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await
}

/// With 256 open files the gRPC port has 144 connections, so 72 handshakes, and 36 of them from one address.
#[tokio::test]
async fn clients_that_do_not_finish_keep_no_other_client_out() {
    let site = Site::new();
    let service = site.plan().open_files(256, 256).start();
    let config = client(&[&site.authority], None);
    let mut open = Rls::connect_tls(service.grpc_port(), config.clone()).await.expect("a connection");
    let mut silent = Vec::new();
    for n in 0..200_u8 {
        let from = IpAddr::from([127, 0, 1, n % 8]);
        silent.push(connect(from, service.grpc_port()).await.expect("a connection"));
    }
    wait::expect("handshakes over the bound", || handshakes(&service, "refused") > 0);
    expect_answer(&mut open).await;
    // Each of the eight addresses has nine handshakes: one of them gives its place to a client of another address.
    for n in 0..20_u8 {
        silent.push(
            connect(IpAddr::from([127, 0, 1, n % 8]), service.grpc_port()).await.expect("a connection"),
        );
        let newcomer = Rls::connect_tls(service.grpc_port(), config.clone()).await;
        expect_answer(&mut newcomer.expect("a place at once")).await;
    }
    assert!(handshakes(&service, "displaced") > 0);
    expect_answer(&mut open).await;
    wait::expect("a line", || service.log().contains("too many handshakes are not finished"));
}

/// One address has half of the handshakes, so that another one connects at once.
#[tokio::test]
async fn one_address_leaves_handshakes_to_the_others() {
    let site = Site::new();
    let service = site.plan().open_files(256, 256).start();
    let greedy = IpAddr::from([127, 0, 1, 1]);
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(connect(greedy, service.grpc_port()).await.expect("a connection"));
    }
    wait::expect("handshakes over the bound", || handshakes(&service, "refused") >= 24);
    let config = client(&[&site.authority], None);
    let modest = Rls::connect_tls(service.grpc_port(), config).await;
    expect_answer(&mut modest.expect("a handshake at once")).await;
    assert_eq!(handshakes(&service, "displaced"), 0);
}

/// The CPU time of the thread of the handshakes, and that of all other threads together.
fn cpu_of_handshakes(service: &Ratelimitd) -> (u64, u64) {
    let (of_handshakes, others): (Vec<_>, Vec<_>) =
        service.cpu_by_thread().into_iter().partition(|(name, _)| name == "tls-handshakes");
    let sum = |times: Vec<(String, u64)>| times.iter().map(|(_, time)| time).sum();
    (sum(of_handshakes), sum(others))
}

/// A client sends a recorded message and leaves after the answer, so a signature of some milliseconds costs it nothing.
/// The threads of the pages, of the calls and of the acceptors do next to nothing for it.
#[tokio::test]
async fn handshakes_take_no_time_of_the_threads_that_serve() {
    const CLIENTS: u64 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let identity = made_by_openssl(folder.path(), "genrsa -out tls.key 4096", ENVOY_GATEWAY);
    let service = with_certificate(plan(), "grpc", &identity).start();
    let mut hello = Vec::new();
    let name = ServerName::try_from(SERVER_NAME).expect("a name");
    let mut recorded = ClientConnection::new(client(&[&Authority::new()], None), name).expect("a client");
    recorded.write_tls(&mut hello).expect("room for a message");

    let (before, others_before) = cpu_of_handshakes(&service);
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(("127.0.0.1", service.grpc_port())).await.expect("a connection");
        stream.write_all(&hello).await.expect("an open connection");
        stream.read_u8().await.expect("the answer to the recorded message");
    }
    wait::expect("the handshakes that were left", || handshakes(&service, "abandoned") == CLIENTS);
    let (after, others_after) = cpu_of_handshakes(&service);
    let (of_handshakes, of_others) = (after - before, others_after - others_before);
    assert!(of_handshakes > 4 * of_others, "{of_handshakes} ns, and {of_others} ns elsewhere");
    assert_eq!(http::get(service.http_port(), "/livez", &[]).expect("an answer").status, 200);
    assert_eq!(handshakes(&service, "disconnected"), 0);
}
