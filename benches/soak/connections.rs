//! Connections that come and go: whole, half sent, idle, and without an end that the server is told of.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A new connection every this often.
const INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);
/// Idle connections are closed after as many others were opened.
const IDLE: usize = 50;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// HEADERS of stream 1 whose block does not end: `CONTINUATION` never comes.
const HALF_A_CALL: &[u8] = b"\0\0\x02\x01\0\0\0\0\x01\x83\x86";
const BODY: &str = r#"{"domain":"soak","descriptors":[{"entries":[{"key":"fixed","value":"json"}]}]}"#;

/// Opens connections until `stop`. Returns their number.
pub fn churn(grpc: u16, http: u16, stop: &AtomicBool) -> u64 {
    let mut idle = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return n;
        }
        thread::sleep(INTERVAL);
        match n % 6 {
            0 => drop(send(grpc, PREFACE)),
            1 => drop(send(grpc, &[PREFACE, HALF_A_CALL].concat())),
            2 => drop(send(grpc, &PREFACE[..7])),
            3 => idle.push(send(if n % 4 == 1 { grpc } else { http }, b"")),
            4 => ask(
                http,
                &format!(
                    "POST /json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}",
                    BODY.len()
                ),
            ),
            _ => ask(http, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
        }
        if idle.len() > IDLE {
            idle.remove(0);
        }
    }
    0
}

fn send(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the service listens");
    stream.write_all(bytes).expect("an open connection");
    stream
}

fn ask(port: u16, request: &str) {
    let mut stream = send(port, request.as_bytes());
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 "), "{}", String::from_utf8_lossy(&answer));
}
