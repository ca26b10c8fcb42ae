//! A minimal HTTP client that returns status, headers and body: one request per connection.
//!
//! It needs no runtime, so synchronous tests can use it too. It accepts any status.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout of the connection attempt and of each read.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An answer, with header names in lower case.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Response {
    /// The first header with this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Sends a GET to a port of this machine.
///
/// # Errors
/// If no server listens on the port, the connection is closed without an answer, or the answer is not HTTP.
pub fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> io::Result<Response> {
    let mut lines = vec![format!("GET {path} HTTP/1.1"), "host: localhost".to_owned()];
    lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
    exchange(connect(port)?, &lines, "")
}

/// Sends a GET with headers whose values need not be text.
///
/// # Errors
/// As [`get`].
pub fn get_with_bytes(port: u16, path: &[u8], headers: &[(&str, &[u8])]) -> io::Result<Response> {
    let mut request = [b"GET ", path, b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"].concat();
    for (name, value) in headers {
        request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    send(connect(port)?, &request)
}

/// Connects to a port of this machine.
///
/// # Errors
/// If no server listens on the port.
pub fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends a request exactly as written, and reads the answer. `lines` are the request line and the headers, except for
/// the length of the body and the end of the connection.
///
/// # Errors
/// If the connection is closed without an answer, or the answer is not HTTP.
pub fn exchange(stream: impl Read + Write, lines: &[impl AsRef<str>], body: &str) -> io::Result<Response> {
    let mut request: String = lines.iter().map(|line| format!("{}\r\n", line.as_ref())).collect();
    request.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()));
    send(stream, request.as_bytes())
}

/// Sends a request that ends the connection, and reads the answer.
fn send(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Response> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
}

fn parse(answer: &str) -> Option<Response> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header =
        |line: &str| line.split_once(": ").map(|(key, value)| (key.to_lowercase(), value.to_owned()));
    let mut response =
        Response { status, headers: lines.filter_map(header).collect(), body: body.to_owned() };
    if response.header("transfer-encoding") == Some("chunked") {
        response.body = unchunk(body)?;
    }
    Some(response)
}

/// Joins the pieces of a chunked body; `None` when its end is missing.
fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, tail) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(tail.get(..length)?);
        rest = tail.get(length..)?.strip_prefix("\r\n")?;
    }
}

#[test]
fn status_headers_and_body_are_parsed() {
    let answer = parse("HTTP/1.1 429 Too Many Requests\r\nX-Limit: 3\r\n\r\nslow down").expect("HTTP");
    assert_eq!(
        (answer.status, answer.header("x-limit"), answer.body.as_str()),
        (429, Some("3"), "slow down")
    );
    assert_eq!(answer.header("x-other"), None);
    assert!(parse("").is_none(), "a connection that is closed without data is not an answer");
}

#[test]
fn the_chunks_of_a_body_are_joined() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let whole = parse(&format!("{head}4\r\nslow\r\n5\r\n down\r\n0\r\n\r\n")).expect("HTTP");
    assert_eq!(whole.body, "slow down");
    assert!(parse(&format!("{head}4\r\nslow\r\n")).is_none(), "the last chunk is missing");
}
