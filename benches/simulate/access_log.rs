//! Logs of an hour, line by line with addresses in turn.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::ValueEnum;

const HOUR_MS: u64 = 3_600_000;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Envoy's default text
    Envoy,
    /// Envoy Gateway's JSON
    EnvoyJson,
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::EnvoyJson => "envoy-json",
        }
    }
}

pub fn write_log(path: &Path, layout: Layout, lines: u64, keys: u64) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for number in 0..lines {
        let ms = number * HOUR_MS / lines;
        let (minute, second, ms) = (ms / 60_000, ms / 1_000 % 60, ms % 1_000);
        // An odd factor: the first `keys` lines have different addresses.
        let address = number.wrapping_mul(2_654_435_761) % keys;
        let [a, b, c] = [address >> 16, address >> 8 & 255, address & 255];
        let page = number % 100;
        let time = format_args!("2026-03-03T10:{minute:02}:{second:02}.{ms:03}Z");
        match layout {
            Layout::Envoy => writeln!(
                file,
                "[{time}] \"GET /products?page={page} HTTP/2\" 200 - 0 1024 13 12 \"10.{a}.{b}.{c}\" \
                 \"Mozilla/5.0 Firefox/131.0\" \"6c21c9d0-6b0e-4f62-9c63-{number:012x}\" \"shop.example.com\" \
                 \"10.0.2.1:8080\""
            )?,
            Layout::EnvoyJson => writeln!(
                file,
                "{{\"start_time\":\"{time}\",\"method\":\"GET\",\"x-envoy-origin-path\":\"/products?page={page}\",\
                 \"response_code\":\"200\",\"response_flags\":\"-\",\"bytes_sent\":\"1024\",\"duration\":\"13\",\
                 \"x-forwarded-for\":\"10.{a}.{b}.{c}\",\"user-agent\":\"Mozilla/5.0 Firefox/131.0\",\
                 \"x-request-id\":\"6c21c9d0-6b0e-4f62-9c63-{number:012x}\",\":authority\":\"shop.example.com\"}}"
            )?,
        }
    }
    file.flush()
}
