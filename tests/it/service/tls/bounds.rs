//! Handshakes that are not finished: what they cannot take from the others.

use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream};

use crate::service::tls::{Site, expect_answer, handshakes};
use crate::support::grpc::Rls;
use crate::support::tls::client;
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
    // At first there is no place; after a second the oldest handshake gives its place.
    let newcomer = wait::until_async(wait::PATIENCE, async || {
        Rls::connect_tls(service.grpc_port(), config.clone()).await.ok()
    });
    expect_answer(&mut newcomer.await.expect("a place after a second")).await;
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
