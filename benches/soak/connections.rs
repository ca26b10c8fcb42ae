//! Connections that come and go: whole, half sent, idle, and without an end that the server is told of.

use std::fmt;
use std::io::{self, Read as _, Write as _};
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

/// The connections of a run.
#[derive(Debug, Default)]
pub struct Connections {
    opened: u64,
    /// Those that were refused, and requests over HTTP that were not answered.
    failed: u64,
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} further connections, {} of them refused or not answered", self.opened, self.failed)
    }
}

/// Opens connections until `stop`.
pub fn churn(grpc: u16, http: u16, stop: &AtomicBool) -> Connections {
    let (mut idle, mut connections) = (Vec::new(), Connections::default());
    while !stop.load(Ordering::Relaxed) {
        let n = connections.opened;
        connections.opened += 1;
        thread::sleep(INTERVAL);
        let answered = match n % 6 {
            0 => send(grpc, PREFACE).is_ok(),
            1 => send(grpc, &[PREFACE, HALF_A_CALL].concat()).is_ok(),
            2 => send(grpc, &PREFACE[..7]).is_ok(),
            3 => {
                idle.extend(send(if n % 4 == 1 { grpc } else { http }, b""));
                true
            }
            4 => is_answered(
                http,
                &format!(
                    "POST /json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}",
                    BODY.len()
                ),
            ),
            _ => is_answered(http, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
        };
        connections.failed += u64::from(!answered);
        if idle.len() > IDLE {
            idle.remove(0);
        }
    }
    connections
}

fn send(port: u16, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

fn is_answered(port: u16, request: &str) -> bool {
    let ask = || {
        let mut stream = send(port, request.as_bytes())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        io::Result::Ok(answer.starts_with(b"HTTP/1.1 "))
    };
    ask().unwrap_or(false)
}
