//! Bytes that a server sends in the place of one reply, and then closes the connection.
//!
//! Holds: every decision ends with an answer or an error, within its deadline; an answer has an outcome for each
//! charge, which can be reported; no task of the store panics. Not covered: CLUSTER SLOTS and sentinels, because their
//! replies name the addresses to which the store connects next.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::monotonic;
use engine::algorithm::{
    Attempt, Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow,
};
use engine::{Charge, Charges, Charging, Cost, DecidedBy, FailurePolicy, Outcomes, Pacing, Role, Store};
use store::observer::NoopObserver;
use store::redis::{RedisOptions, RedisStore, script_sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::{panics, service};

const TIMEOUT: Duration = Duration::from_millis(200);
/// Many times [`TIMEOUT`], for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const US: u64 = 60_000_000;

/// What the store asks, and what it gets: the command whose reply is replaced, and the reply.
struct Script {
    command: &'static [u8],
    reply: Vec<u8>,
}

impl Script {
    /// The first byte chooses the command and the form of the reply.
    fn new(form: u8, bytes: &[u8]) -> Self {
        let bulk = |text: &[u8]| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        match form % 5 {
            0 => Self { command: b"EVALSHA", reply: integers(bytes) },
            1 => Self { command: b"EVALSHA", reply: bytes.to_vec() },
            2 => Self { command: b"PING", reply: bytes.to_vec() },
            3 => Self { command: b"SCRIPT", reply: bytes.to_vec() },
            _ => Self { command: b"INFO", reply: bulk(bytes) },
        }
    }

    fn reply_to(&self, command: &[Vec<u8>]) -> Vec<u8> {
        match command[0].as_slice() {
            name if name == self.command => self.reply.clone(),
            b"PING" => b"+PONG\r\n".to_vec(),
            b"SCRIPT" => format!("+{}\r\n", script_sha1()).into_bytes(),
            b"INFO" => b"$0\r\n\r\n".to_vec(),
            b"TIME" => b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n".to_vec(),
            b"EVALSHA" | b"EVAL" => b"*0\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        }
    }
}

/// An array of integers: each is a byte with its length, 0 to 8, and that many bytes.
fn integers(mut bytes: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let (digits, after) = rest.split_at(usize::from(length % 9).min(rest.len()));
        let mut number = [0; 8];
        number[..digits.len()].copy_from_slice(digits);
        numbers.push(if length & 0x80 == 0 {
            i64::from_le_bytes(number)
        } else {
            !i64::from_le_bytes(number)
        });
        bytes = after;
    }
    let lines: String = numbers.iter().map(|number| format!(":{number}\r\n")).collect();
    format!("*{}\r\n{lines}", numbers.len()).into_bytes()
}

/// Decides a request with one charge for each kernel, and asks the server about itself.
pub fn run(data: &[u8]) {
    panics::watch();
    let Some((&form, bytes)) = data.split_first() else { return };
    let script = Script::new(form, bytes);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("socket");
    let started = monotonic();
    service::current_thread_runtime().block_on(async {
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::select! {
            () = serve(&listener, &script) => unreachable!("it accepts connections for ever"),
            () = decide(&socket) => {}
        }
    });
    let elapsed = started.elapsed();
    assert!(elapsed < PATIENCE, "{elapsed:?}");
    panics::assert_none();
}

async fn decide(socket: &Path) {
    let url = format!("unix://{}", socket.display());
    let options = RedisOptions {
        urls: vec![url.parse().expect("a URL")],
        timeout: TIMEOUT,
        connections: 1,
        ..RedisOptions::default()
    };
    let store = RedisStore::new(&options, Arc::new(NoopObserver)).expect("valid options");
    let charges = charges();
    if let Ok(outcomes) = store.decide(&charges).await {
        check(&charges, &outcomes);
    }
    assert_eq!(store.describe_servers().await.len(), 1);
    store.shutdown().await.expect("no task panicked");
}

fn check(charges: &Charges, outcomes: &Outcomes) {
    assert_eq!(outcomes.by_charge.len(), charges.len());
    for (charge, outcome) in charges.values().zip(&outcomes.by_charge) {
        let DecidedBy::Store(snapshot) = outcome.decided_by else { panic!("not from Redis: {outcome:?}") };
        let attempt = Attempt { now_us: snapshot.now_us, cost: charge.cost };
        // Answers of the deny cache are computed at later times.
        for later_us in [0, US, 100 * US] {
            if let Some(reading) = charge.kernel.reading_later(&snapshot.reading, snapshot.now_us + later_us)
            {
                let wait = charge.kernel.wait(&reading, attempt);
                let report = charge.kernel.report(&reading, attempt, outcome.verdict);
                assert!(report.remaining <= outcome_bound(charge), "{wait:?} {report:?}");
            }
        }
        assert!(outcome.report.remaining <= outcome_bound(charge), "{outcome:?}");
    }
}

/// No report says that more remains than the limit admits at once.
fn outcome_bound(charge: &Charge) -> u64 {
    charge.kernel.max_cost()
}

fn charges() -> Charges {
    let kernels = [
        Kernel::FixedWindow(FixedWindow::new(5, US)),
        Kernel::CalendarWindow(CalendarWindow::new(5, [US, 2 * US, 3 * US])),
        Kernel::SlidingWindow(SlidingWindow::new(5, US)),
        Kernel::SlidingLog(SlidingLog::new(5, US)),
        Kernel::Gcra(Gcra::new(7, US, 5, Pacing::Meter)),
        Kernel::Gcra(Gcra::new(6, US, 5, Pacing::Queue)),
        Kernel::IntervalBucket(IntervalBucket::new(5, 5, US)),
        Kernel::Blocked(Blocked::new(US)),
    ];
    let mut charges = Charges::default();
    for (number, kernel) in kernels.into_iter().enumerate() {
        let charge = Charge {
            kernel,
            cost: Cost::take(1),
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        charges.push(charge, |key| key.push_str(&number.to_string()));
    }
    charges
}

/// Accepts connections, one after another: the store uses one, and each question about the server another one.
async fn serve(listener: &UnixListener, script: &Script) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        // The store may close the connection at any time.
        let _ = serve_connection(stream, script).await;
    }
}

async fn serve_connection(mut stream: UnixStream, script: &Script) -> std::io::Result<()> {
    let mut unread = Vec::new();
    while stream.read_buf(&mut unread).await? > 0 {
        while let Some(command) = take_command(&mut unread) {
            stream.write_all(&script.reply_to(&command)).await?;
            if command[0] == script.command {
                return stream.shutdown().await;
            }
        }
    }
    Ok(())
}

/// Removes the first command if it is there as a whole.
fn take_command(unread: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let (mut at, mut words) = (0, Vec::new());
    let number = |at: &mut usize| -> Option<usize> {
        let length = unread[*at..].windows(2).position(|end| end == b"\r\n")?;
        let digits = std::str::from_utf8(&unread[*at + 1..*at + length]).expect("digits");
        *at += length + 2;
        Some(digits.parse().expect("a length"))
    };
    for _ in 0..number(&mut at)? {
        let length = number(&mut at)?;
        words.push(unread.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= unread.len()).then(|| {
        unread.drain(..at);
        words
    })
}
