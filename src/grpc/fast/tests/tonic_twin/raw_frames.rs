//! Callers that send frames which no library sends.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::raw_client::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, block, frame, literal,
};
use super::super::tonic_twin::*;

const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

fn call_frames(block: &[u8]) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, 1, block), frame(DATA, END_STREAM, 1, &valid_request())].concat()
}

/// A call whose header block is sent in `frames` frames.
fn continued(frames: usize) -> Vec<u8> {
    let block = block(Some("server"), &[]);
    let pieces: Vec<&[u8]> = block.chunks(block.len().div_ceil(frames)).collect();
    let last = pieces.len() - 1;
    let mut sent = Vec::new();
    for (index, piece) in pieces.into_iter().enumerate() {
        let kind = if index == 0 { HEADERS } else { CONTINUATION };
        sent.extend(frame(kind, if index == last { END_HEADERS } else { 0 }, 1, piece));
    }
    [sent, frame(DATA, END_STREAM, 1, &valid_request())].concat()
}

fn script(frames: &[u8]) -> Vec<u8> {
    [PREFACE, SETTINGS, frames].concat()
}

struct RawCaller {
    name: &'static str,
    sent: Vec<u8>,
    seen: Seen,
}

const ANSWERED: Seen = both("HEADERS 1, DATA 1, HEADERS 1 end; open");
const PROTOCOL_ERROR: Seen = both("GOAWAY PROTOCOL_ERROR; closed");

fn raw_caller(name: &'static str, frames: &[u8], seen: Seen) -> RawCaller {
    RawCaller { name, sent: script(frames), seen }
}

fn usual_block() -> Vec<u8> {
    block(Some("server"), &[])
}

fn header_callers() -> Vec<RawCaller> {
    let usual = usual_block();
    vec![
        raw_caller("no authority", &call_frames(&block(None, &[])), ANSWERED),
        raw_caller(
            "a malformed authority",
            &call_frames(&block(Some("a b"), &[])),
            both("RST_STREAM 1 PROTOCOL_ERROR; open"),
        ),
        raw_caller(
            "a header of HTTP/1",
            &call_frames(&block(Some("server"), &[("connection", "close")])),
            both("RST_STREAM 1 PROTOCOL_ERROR; open"),
        ),
        raw_caller(
            "a header in capitals",
            &call_frames(&block(Some("server"), &[("X-Big", "x")])),
            PROTOCOL_ERROR,
        ),
        raw_caller("a header block in two frames", &continued(2), ANSWERED),
        raw_caller("a header block in four frames", &continued(4), ANSWERED),
        raw_caller(
            "headers that cannot be decoded",
            &call_frames(b"\xff\xff\xff\xff\xff\xff\xff"),
            PROTOCOL_ERROR,
        ),
        raw_caller(
            "another frame between the headers",
            &[frame(HEADERS, 0, 1, &usual), frame(PING, 0, 0, &[0; 8])].concat(),
            PROTOCOL_ERROR,
        ),
    ]
}

fn frame_callers() -> Vec<RawCaller> {
    let usual = usual_block();
    vec![
        RawCaller {
            name: "no HTTP/2",
            sent: b"GET / HTTP/1.1\r\nhost: server\r\n\r\n".to_vec(),
            seen: both("closed"),
        },
        RawCaller { name: "half a preface, then the end", sent: PREFACE[..9].to_vec(), seen: both("open") },
        raw_caller("nothing but the preface", &[], both("open")),
        raw_caller("the usual call", &call_frames(&usual), ANSWERED),
        raw_caller("a PING", &frame(PING, 0, 0, b"any text"), both("PING; open")),
        raw_caller("a PING of another length", &frame(PING, 0, 0, b"text"), PROTOCOL_ERROR),
        raw_caller("data without a call", &frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        raw_caller("data on the connection", &frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        raw_caller(
            "a call with the number of a server",
            &frame(HEADERS, END_HEADERS, 2, &usual),
            PROTOCOL_ERROR,
        ),
        raw_caller("a window that grows by nothing", &frame(WINDOW_UPDATE, 0, 0, &[0; 4]), PROTOCOL_ERROR),
        raw_caller(
            "a window that is too large",
            &frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            both("GOAWAY FLOW_CONTROL_ERROR; closed"),
        ),
        raw_caller("a reset of no call", &frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), PROTOCOL_ERROR),
        raw_caller(
            "a frame of an unknown kind",
            &[frame(0x42, 0, 0, b"x"), call_frames(&usual)].concat(),
            ANSWERED,
        ),
        raw_caller(
            "a frame that is too long",
            &frame(DATA, 0, 1, &vec![0; 16 * 1024 + 1]),
            both("GOAWAY FRAME_SIZE_ERROR; closed"),
        ),
        raw_caller(
            "a GOAWAY",
            &[call_frames(&usual), frame(GOAWAY, 0, 0, &[0; 8])].concat(),
            both("HEADERS 1, DATA 1, HEADERS 1 end, GOAWAY NO_ERROR; closed"),
        ),
    ]
}

fn flood_callers() -> Vec<RawCaller> {
    let usual = usual_block();
    let resets: Vec<u8> = (0..200_u32)
        .flat_map(|call| {
            let stream = 2 * call + 1;
            [frame(HEADERS, END_HEADERS, stream, &usual), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])]
                .concat()
        })
        .collect();
    let endless = [
        frame(HEADERS, 0, 1, &usual),
        frame(CONTINUATION, 0, 1, &literal("x-more", &"x".repeat(100))).repeat(12_000),
    ]
    .concat();
    vec![
        raw_caller("a header block that does not end", &endless, both("GOAWAY ENHANCE_YOUR_CALM; closed")),
        raw_caller("a flood of resets", &resets, both("GOAWAY ENHANCE_YOUR_CALM; closed")),
    ]
}

fn reason(payload: &[u8]) -> String {
    let code = payload.first_chunk().map_or(0, |code| u32::from_be_bytes(*code));
    format!("{:?}", Reason::from(code))
}

/// What the server sends, without settings and window frames.
fn description(mut bytes: &[u8]) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let end = if head[4] & END_STREAM == 0 { "" } else { " end" };
        match head[3] {
            DATA => seen.push(format!("DATA {stream}{end}")),
            HEADERS => seen.push(format!("HEADERS {stream}{end}")),
            RST_STREAM => seen.push(format!("RST_STREAM {stream} {}", reason(payload))),
            PING => seen.push("PING".to_owned()),
            GOAWAY => seen.push(format!("GOAWAY {}", reason(&payload[4..]))),
            _ => {}
        }
        bytes = rest;
    }
    seen
}

/// Everything that the server sends before its own first PING.
async fn play(twin: Twin, sent: &[u8]) -> String {
    let mut pipe = twin.connect(Deciding::Answers);
    // The server may close the connection before it has read everything.
    let _ = pipe.write_all(sent).await;
    let mut received = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), pipe.read_to_end(&mut received)).await;
    let end = match read {
        Ok(Ok(_)) => "closed".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "open".to_owned(),
    };
    let seen = description(&received);
    if seen.is_empty() { end } else { format!("{}; {end}", seen.join(", ")) }
}

#[tokio::test(start_paused = true)]
async fn strange_frames_are_answered_as_by_tonic() {
    let mut mismatches = Vec::new();
    for RawCaller { name, sent, seen } in
        [header_callers(), frame_callers(), flood_callers()].into_iter().flatten()
    {
        let (ours, tonic) = (play(Twin::Ours, &sent).await, play(Twin::Tonic, &sent).await);
        mismatches.extend(seen.mismatch(name, &ours, &tonic));
    }
    report(&mismatches);
}
