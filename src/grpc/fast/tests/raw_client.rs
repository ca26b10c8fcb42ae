//! A client that sends what an HTTP/2 library does not: a reset of an answered call, no PING.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::super::tests::*;

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header with literal name and value.
pub(super) fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    assert!(name.len() < 127 && value.len() < 127);
    [vec![0], text(name), text(value)].concat()
}

/// Header block of a decision call; `authority` and `more` can be absent.
pub(super) fn block(authority: Option<&str>, more: &[(&str, &str)]) -> Vec<u8> {
    // HPACK's static table: `:method POST`, `:scheme http`.
    let mut block = b"\x83\x86".to_vec();
    block.extend(literal(":path", PATH));
    block.extend(authority.map(|authority| literal(":authority", authority)).unwrap_or_default());
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")].iter().chain(more) {
        block.extend(literal(name, value));
    }
    block
}

/// Headers of an answer.
#[derive(PartialEq, Eq)]
enum Part {
    Head,
    Trailers,
}

pub(super) struct RawClient {
    pipe: DuplexStream,
    pub(super) next: u32,
    /// Bytes of the answers.
    pub(super) taken: usize,
    /// The last message.
    answer: Vec<u8>,
    pub(super) reasons: Vec<Reason>,
}

impl RawClient {
    /// Returns the client, and the server's end of its connection.
    pub(super) async fn connect(server: Arc<ConnectionServer>) -> (Self, JoinHandle<()>) {
        let (mut pipe, theirs) = tokio::io::duplex(1024 * 1024);
        let served = spawn(server.serve(theirs, placement(), admitted_place()));
        let greeting = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
        pipe.write_all(&greeting).await.expect("room in the pipe");
        (Self { pipe, next: 1, taken: 0, answer: Vec::new(), reasons: Vec::new() }, served)
    }

    /// Sends calls, and waits for the headers of their answers.
    pub(super) async fn call(&mut self, calls: u32) -> std::io::Result<()> {
        self.send(calls).await?;
        let mut answers = 0;
        while answers < calls {
            answers += u32::from(self.read_frame().await? == Some(Part::Head));
        }
        Ok(())
    }

    /// Sends a call, and returns its answer with its prefix.
    pub(super) async fn answer(&mut self) -> std::io::Result<Vec<u8>> {
        self.send(1).await?;
        while self.read_frame().await? != Some(Part::Trailers) {}
        Ok(std::mem::take(&mut self.answer))
    }

    async fn read_frame(&mut self) -> std::io::Result<Option<Part>> {
        let mut head = [0; 9];
        self.pipe.read_exact(&mut head).await?;
        let mut payload = vec![0; usize::from(head[1]) * 256 + usize::from(head[2])];
        self.pipe.read_exact(&mut payload).await?;
        match head[3] {
            HEADERS if head[4] & END_STREAM == 0 => return Ok(Some(Part::Head)),
            HEADERS => return Ok(Some(Part::Trailers)),
            DATA => {
                self.taken += payload.len();
                self.answer = payload;
            }
            GOAWAY => {
                let code = payload[4..8].try_into().expect("four bytes");
                self.reasons.push(u32::from_be_bytes(code).into());
            }
            _ => {}
        }
        Ok(None)
    }

    /// Sends calls.
    pub(super) async fn send(&mut self, calls: u32) -> std::io::Result<()> {
        let block = block(Some("server"), &[]);
        let mut sent = Vec::new();
        for _ in 0..calls {
            sent.extend(frame(HEADERS, END_HEADERS, self.next, &block));
            sent.extend(frame(DATA, END_STREAM, self.next, &valid_request()));
            self.next += 2;
        }
        self.pipe.write_all(&sent).await
    }

    /// Resets the last calls.
    pub(super) async fn reset_last(&mut self, calls: u32) -> std::io::Result<()> {
        for stream in (self.next - 2 * calls..self.next).step_by(2) {
            self.reset(stream).await?;
        }
        Ok(())
    }

    pub(super) async fn reset(&mut self, stream: u32) -> std::io::Result<()> {
        self.pipe.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).await
    }
}
