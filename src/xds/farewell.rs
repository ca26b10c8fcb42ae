//! What a server says of the end of a connection in HTTP/2: GOAWAY, or an answer in HTTP/1.1 instead. The libraries
//! above do not tell it if the connection ends before they sent a request.

use std::fmt;

const HEADER_BYTES: usize = 9;
const GOAWAY: u8 = 7;
/// Of a GOAWAY: the last stream, the code, and as much text as a line of the log needs.
const MAX_PAYLOAD_BYTES: usize = 8 + 200;

/// The error codes of HTTP/2, from 0.
const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// With the text of the server, which may be empty.
    Goaway { code: u32, text: String },
    /// The server does not speak HTTP/2.
    Http1,
}

impl fmt::Display for Farewell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Goaway { code, text } => {
                f.write_str("the server sent GOAWAY ")?;
                match usize::try_from(*code).ok().and_then(|index| CODES.get(index)) {
                    Some(name) => f.write_str(name)?,
                    None => write!(f, "{code}")?,
                }
                if text.is_empty() { Ok(()) } else { write!(f, " {text:?}") }
            }
            Self::Http1 => f.write_str("the server answers in HTTP/1.1, so this is not its port for gRPC"),
        }
    }
}

/// Looks for it in the bytes of a server.
#[derive(Debug, Default)]
pub(super) struct FrameWatch {
    header: [u8; HEADER_BYTES],
    /// Of `header`.
    filled: usize,
    /// Bytes of the payload that are still to come.
    rest: usize,
    /// The payload of a GOAWAY.
    payload: Vec<u8>,
    pub farewell: Option<Farewell>,
}

impl FrameWatch {
    /// The next bytes of the server.
    pub fn read_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.farewell != Some(Farewell::Http1) {
            bytes =
                if self.filled < HEADER_BYTES { self.read_header(bytes) } else { self.read_payload(bytes) };
        }
    }

    fn read_header<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let missing = &mut self.header[self.filled..];
        let (taken, after) = bytes.split_at(missing.len().min(bytes.len()));
        missing[..taken.len()].copy_from_slice(taken);
        self.filled += taken.len();
        if self.filled == HEADER_BYTES {
            let [high, middle, low, ..] = self.header;
            self.rest = usize::from(high) * 65_536 + usize::from(middle) * 256 + usize::from(low);
            if self.header.starts_with(b"HTTP/1.") {
                self.farewell = Some(Farewell::Http1);
            } else if self.rest == 0 {
                self.filled = 0;
            }
        }
        after
    }

    fn read_payload<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (taken, after) = bytes.split_at(self.rest.min(bytes.len()));
        self.rest -= taken.len();
        if self.header[3] == GOAWAY {
            let room = MAX_PAYLOAD_BYTES.saturating_sub(self.payload.len());
            self.payload.extend_from_slice(&taken[..taken.len().min(room)]);
        }
        if self.rest == 0 {
            self.filled = 0;
            let payload = std::mem::take(&mut self.payload);
            if let [_, _, _, _, a, b, c, d, text @ ..] = payload.as_slice() {
                let (code, text) = (u32::from_be_bytes([*a, *b, *c, *d]), String::from_utf8_lossy(text));
                self.farewell = Some(Farewell::Goaway { code, text: text.into_owned() });
            }
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    fn goaway(code: u8, text: &[u8]) -> Vec<u8> {
        frame(GOAWAY, &[&[0, 0, 0, 1, 0, 0, 0, code], text].concat())
    }

    /// What is said in these bytes, read in pieces of each size.
    fn farewells(bytes: &[u8]) -> Option<String> {
        let told = [1, 2, 7, 9, 10, bytes.len()].map(|size| {
            let mut watch = FrameWatch::default();
            bytes.chunks(size).for_each(|piece| watch.read_bytes(piece));
            watch.farewell.as_ref().map(Farewell::to_string)
        });
        assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
        told[0].clone()
    }

    #[test]
    fn a_goaway_is_told_with_its_code_and_its_text() {
        let settings = frame(4, &[]);
        let data = frame(0, &[GOAWAY; 300]);
        let cases = [
            (goaway(11, b"too_many_pings"), "GOAWAY ENHANCE_YOUR_CALM \"too_many_pings\""),
            (goaway(0, b""), "GOAWAY NO_ERROR"),
            (goaway(99, b"\n"), "GOAWAY 99 \"\\n\""),
        ];
        for (last, expected) in cases {
            let told = farewells(&[settings.clone(), data.clone(), last].concat());
            assert_eq!(told, Some(format!("the server sent {expected}")));
        }
        assert_eq!(farewells(&[settings, data].concat()), None);
        assert_eq!(farewells(&frame(GOAWAY, &[0; 7])), None, "too short");
    }

    #[test]
    fn a_long_text_is_cut() {
        let told = farewells(&goaway(2, &[b'x'; 5_000])).expect("a GOAWAY");
        assert_eq!(told.matches('x').count(), 200);
    }

    #[test]
    fn an_answer_in_http_1_is_told() {
        let told = farewells(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").expect("told");
        assert!(told.contains("HTTP/1.1"), "{told}");
        assert_eq!(farewells(b"HTTP/2"), None);
    }
}
