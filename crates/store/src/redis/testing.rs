//! A scripted Redis for unit tests. It speaks RESP2 over an in-memory pipe, so tests run without a server and under
//! paused time.
//!
//! [`FakeServer::listen`] registers a host and port for the current thread: the store's connections to this address
//! reach the fake server as long as the test runs on a current-thread runtime.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::observer::Observer;

/// Words of a command, `["PING"]`. Bytes that are not UTF-8 are replaced.
pub(crate) type Words = Vec<String>;

/// A fake server's answer to a command.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Nil,
    Status(&'static str),
    Int(i64),
    Bulk(String),
    Array(Vec<Reply>),
    /// `CODE message`, without the minus sign.
    Error(&'static str),
    /// The reply after a pause. Later commands on the connection wait as well.
    After(Duration, Box<Reply>),
    /// No reply, not even to later commands on the connection.
    Silence,
    /// The server closes the connection.
    Close,
    /// The reply, and then the server closes the connection.
    Last(Box<Reply>),
}

impl Reply {
    /// Reply to a script call: every key is a fixed window of index 0 with a count of 1.
    pub(crate) fn granted(call: &[String]) -> Self {
        let keys: usize = call[2].parse().expect("the number of keys");
        let windows = (0..keys).flat_map(|_| [Self::Int(0), Self::Int(1)]);
        Self::Array(std::iter::once(Self::Int(1)).chain(windows).collect())
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Status(text) => out.extend_from_slice(format!("+{text}\r\n").as_bytes()),
            Self::Int(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Self::Bulk(text) => out.extend_from_slice(format!("${}\r\n{text}\r\n", text.len()).as_bytes()),
            Self::Array(items) => {
                out.extend_from_slice(format!("*{}\r\n", items.len()).as_bytes());
                items.iter().for_each(|item| item.write(out));
            }
            Self::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
            Self::After(..) | Self::Silence | Self::Close | Self::Last(_) => panic!("not a part of a reply"),
        }
    }
}

/// Answers a command; `None` for the default answer: PONG, OK, or a granted script call.
type Handler = dyn Fn(&[String]) -> Option<Reply> + Send + Sync;

/// A server at one address.
#[derive(Clone)]
pub(crate) struct FakeServer {
    state: Arc<State>,
}

struct State {
    handler: Mutex<Arc<Handler>>,
    seen: Mutex<Seen>,
    tasks: Mutex<JoinSet<()>>,
}

/// What a fake server received.
#[derive(Default)]
struct Seen {
    connections: usize,
    commands: Vec<Words>,
    refuses: bool,
    refused: usize,
}

thread_local! {
    static SERVERS: RefCell<HashMap<(String, u16), FakeServer>> = RefCell::default();
}

/// Returns a connection to the fake server at this address; `None` if this thread does not have one.
pub(crate) fn dial(host: &str, port: u16) -> Option<Result<DuplexStream, StoreError>> {
    SERVERS.with_borrow(|servers| Some(servers.get(&(host.to_owned(), port))?.accept()))
}

impl FakeServer {
    /// Starts a server, replacing any other at this address.
    pub(crate) fn listen(
        host: &str,
        port: u16,
        handler: impl Fn(&[String]) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let state =
            State { handler: Mutex::new(Arc::new(handler)), seen: Mutex::default(), tasks: Mutex::default() };
        let server = Self { state: Arc::new(state) };
        SERVERS.with_borrow_mut(|servers| servers.insert((host.to_owned(), port), server.clone()));
        server
    }

    /// Answers later commands with `handler`.
    pub(crate) fn handle(&self, handler: impl Fn(&[String]) -> Option<Reply> + Send + Sync + 'static) {
        *self.state.handler.lock() = Arc::new(handler);
    }

    pub(crate) fn set_refuses(&self, refuses: bool) {
        self.state.seen.lock().refuses = refuses;
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.seen.lock().connections
    }

    pub(crate) fn refused(&self) -> usize {
        self.state.seen.lock().refused
    }

    /// Commands so far that start with `name`.
    pub(crate) fn commands(&self, name: &str) -> Vec<Words> {
        self.state.seen.lock().commands.iter().filter(|words| words[0] == name).cloned().collect()
    }

    fn accept(&self) -> Result<DuplexStream, StoreError> {
        let mut seen = self.state.seen.lock();
        if seen.refuses {
            seen.refused += 1;
            return Err(StoreError::Unreachable("connection refused".into()));
        }
        seen.connections += 1;
        let (ours, theirs) = duplex(1 << 16);
        self.state.tasks.lock().spawn(serve(Arc::clone(&self.state), ours));
        Ok(theirs)
    }
}

/// Answers the commands of one connection in order, until either end closes it.
async fn serve(state: Arc<State>, mut pipe: DuplexStream) {
    let mut unread = Vec::new();
    while let Ok(1..) = pipe.read_buf(&mut unread).await {
        while let Some(command) = take_command(&mut unread) {
            state.seen.lock().commands.push(command.clone());
            let handler = Arc::clone(&*state.handler.lock());
            let mut reply = handler(&command).unwrap_or_else(|| default_reply(&command));
            if let Reply::After(pause, later) = reply {
                sleep(pause).await;
                reply = *later;
            }
            let is_last = matches!(reply, Reply::Last(_));
            if let Reply::Last(last) = reply {
                reply = *last;
            }
            match reply {
                Reply::Close => return,
                Reply::Silence => std::future::pending().await,
                reply => {
                    let mut bytes = Vec::new();
                    reply.write(&mut bytes);
                    if pipe.write_all(&bytes).await.is_err() || is_last {
                        return;
                    }
                }
            }
        }
    }
}

fn default_reply(command: &[String]) -> Reply {
    match command[0].as_str() {
        "PING" => Reply::Status("PONG"),
        "SCRIPT" => Reply::Bulk("hash".to_owned()),
        "EVALSHA" | "EVAL" => Reply::granted(command),
        _ => Reply::Status("OK"),
    }
}

/// Takes a whole command from the front of the bytes: `*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n`.
fn take_command(bytes: &mut Vec<u8>) -> Option<Words> {
    let mut at = 0;
    let count = take_header(bytes, &mut at, b'*')?;
    let mut words = Words::with_capacity(count);
    for _ in 0..count {
        let length = take_header(bytes, &mut at, b'$')?;
        let word = bytes.get(at..at + length)?;
        bytes.get(at + length..at + length + 2)?;
        words.push(String::from_utf8_lossy(word).into_owned());
        at += length + 2;
    }
    bytes.drain(..at);
    Some(words)
}

/// Reads `<sign><number>\r\n`.
fn take_header(bytes: &[u8], at: &mut usize, sign: u8) -> Option<usize> {
    let line = bytes.get(*at..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(line[0], sign, "a client sends arrays of bulk strings");
    *at += end + 2;
    Some(std::str::from_utf8(&line[1..end]).expect("ASCII").parse().expect("a length"))
}

/// Panics at one event, in the task that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanickingObserver {
    AtBatch,
    AtLostUndo,
}

impl Observer for PanickingObserver {
    fn batch(&self, requests: usize) {
        assert!(*self != Self::AtBatch, "a batch of {requests}");
    }
    fn lost_undo(&self) {
        assert!(*self != Self::AtLostUndo, "a lost undo");
    }
}
