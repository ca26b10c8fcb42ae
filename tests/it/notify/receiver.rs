//! A receiver of notices. It answers as a test says, and keeps what it got.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

/// Base64 of 24 bytes.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// With names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub(crate) fn message(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Ends with the test's process.
pub(crate) struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    received: Mutex<Vec<Received>>,
    /// Status line and headers of the next answers; the last one is repeated. Empty: no answer.
    answers: Mutex<Vec<&'static str>>,
    /// Silent connections.
    held: Mutex<Vec<TcpStream>>,
}

impl Receiver {
    pub(crate) fn start(answers: &[&'static str]) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), answers)
    }

    pub(crate) fn start_at(address: SocketAddr, answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State { answers: Mutex::new(answers.to_vec()), ..State::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(stream.expect("a connection")));
            }
        });
        Self { address, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?token=t0ken", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().clone()
    }
}

impl State {
    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let Some(request) = read_request(&mut stream) else { return };
        let answer = {
            let mut answers = self.answers.lock();
            if answers.len() > 1 { Some(answers.remove(0)) } else { answers.first().copied() }
        };
        self.received.lock().push(request);
        match answer {
            None => self.held.lock().push(stream),
            Some(head) => {
                let text = format!("HTTP/1.1 {head}\r\ncontent-length: 2\r\n\r\nok");
                drop(stream.write_all(text.as_bytes()));
            }
        }
    }
}

/// `None` if the client went away.
fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut part = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            assert_eq!(lines.next(), Some("POST /hook?token=t0ken HTTP/1.1"), "{head}");
            let header = |line: &str| {
                let (name, value) = line.split_once(": ").expect("a header");
                (name.to_lowercase(), value.to_owned())
            };
            let received = Received { headers: lines.map(header).collect(), body: body.to_owned() };
            if body.len() >= received.header("content-length").parse().expect("a number") {
                return Some(received);
            }
        }
        let length = stream.read(&mut part).ok().filter(|length| *length > 0)?;
        bytes.extend(&part[..length]);
    }
}

/// Writes the secret to a file of this folder.
pub(crate) fn secret_file(folder: &Path) -> String {
    let file = folder.join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).expect("room for a secret");
    file.display().to_string()
}

/// Checks the signature as the standard describes it, with Python's own HMAC.
pub(crate) fn assert_signed(received: &Received) {
    const PROGRAM: &str = "import base64, hashlib, hmac, sys
key = base64.b64decode(sys.argv[1].removeprefix('whsec_'))
signed = f'{sys.argv[2]}.{sys.argv[3]}.'.encode() + sys.stdin.buffer.read()
print('v1,' + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode())";
    let [id, timestamp, signature] =
        ["id", "timestamp", "signature"].map(|name| received.header(&format!("webhook-{name}")));
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM, SECRET, id, timestamp]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = command.spawn().expect("python3");
    python.stdin.take().expect("a pipe").write_all(received.body.as_bytes()).expect("it reads");
    let output = python.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), signature, "{received:?}");
}
