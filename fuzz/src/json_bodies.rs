//! One body to `/json`, on a connection that stays open.
//!
//! Holds: the answer is 200 or 429 with the JSON of that code, 400, or 413 for a body over the bound; a body that
//! cannot be read, or is out of bounds, is 400; and a body that can be read means the same in the other spelling of the
//! mapping.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::{RawDescriptor, RawRequest};
use ratelimitd::settings::Settings;
use serde_json::{Value, json};

use super::{panics, service};

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends `data` as the body of a POST.
pub fn run(data: &[u8]) {
    panics::watch();
    let (status, body) = post(data);
    let read: Result<RawRequest, _> = serde_json::from_slice(data);
    match status {
        200 | 429 => {
            let answer: Value = serde_json::from_slice(&body).expect("JSON");
            let code = if status == 200 { "OK" } else { "OVER_LIMIT" };
            assert_eq!(answer["overallCode"], code, "{answer}");
            assert!(read.is_ok(), "answered, but {read:?}");
        }
        400 => {}
        413 => assert!(data.len() > Settings::default().server.max_message_bytes, "{}", data.len()),
        _ => panic!("status {status}: {}", String::from_utf8_lossy(&body)),
    }
    if let Ok(request) = read {
        let spelled = other_spelling(&request);
        assert_eq!(serde_json::from_str(&spelled).ok(), Some(request), "{spelled}");
    }
    panics::assert_none();
}

/// The body that means the same, with names in snake case and 64-bit numbers as text.
fn other_spelling(request: &RawRequest) -> String {
    let descriptors: Vec<Value> = request.descriptors.iter().map(descriptor).collect();
    let hits = request.hits_addend.to_string();
    json!({ "domain": request.domain, "descriptors": descriptors, "hits_addend": hits }).to_string()
}

fn descriptor(descriptor: &RawDescriptor) -> Value {
    let entry = |entry: &engine::Entry| json!({ "key": entry.key, "value": entry.value });
    let limit = descriptor.limit.map(|limit| {
        json!({
            "requests_per_unit": limit.requests_per_unit.to_string(),
            "unit": limit.unit,
            "unit_multiplier": limit.unit_multiplier.map(|multiplier| multiplier.to_string()),
        })
    });
    json!({
        "entries": descriptor.entries.iter().map(entry).collect::<Vec<_>>(),
        "limit": limit,
        "hits_addend": descriptor.hits_addend.map(|hits| hits.to_string()),
        "is_negative_hits": descriptor.is_negative_hits,
    })
}

static CONNECTION: Mutex<Option<BufReader<TcpStream>>> = Mutex::new(None);

/// The status and the body of the answer.
fn post(body: &[u8]) -> (u16, Vec<u8>) {
    let mut connection = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
    // The server closes a connection whose request it did not read to the end.
    if let Some(answer) = connection.as_mut().and_then(|open| exchange(open, body).ok()) {
        return answer;
    }
    let stream = TcpStream::connect(service::http()).expect("the service listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("an open connection");
    exchange(connection.insert(BufReader::new(stream)), body).expect("an answer")
}

fn exchange(connection: &mut BufReader<TcpStream>, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    let mut request =
        String::from("POST /json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n");
    write!(request, "Content-Length: {}\r\n\r\n", body.len()).expect("a String takes any text");
    let sent = [request.as_bytes(), body].concat();
    // An error of the write is that of a server which answered early: the answer is still there to read.
    let written = connection.get_mut().write_all(&sent);
    let mut status = String::new();
    if connection.read_line(&mut status)? == 0 {
        written?;
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line)?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().expect("a length"),
            Some(_) => {}
            None => break,
        }
    }
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer)?;
    Ok((code.expect("a status line"), answer))
}
