//! A line of the ledger: a JSON object.

use std::borrow::Cow;

use engine::{Booking, BookingMode, parse_key};
use serde::{Deserialize, Serialize};

/// A line. Numbers that are 0 and fields that are empty are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line<'l> {
    /// Host name and start of the process.
    #[serde(borrow)]
    pub process: Cow<'l, str>,
    /// Number of the line in its process, from 0.
    pub seq: u64,
    /// `Some` in the first line of a file.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub begin: Option<Begin<'l>>,
    /// `true` in the last line of a process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub end: bool,
    /// Start of the quarter hour, seconds since the epoch.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: u64,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    pub domain: Cow<'l, str>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    pub rule: Cow<'l, str>,
    /// `key=value` of each entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    pub entries: Vec<Cow<'l, str>>,
    /// `true` for units without their key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unattributed: bool,
    /// The limit's number at its last decision.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ok: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub over: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub units: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub back: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub refused: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown: u64,
    /// `shadow` or `soft`; empty for a limit that denies.
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    pub mode: Cow<'l, str>,
    /// A limit's share, reported by `notify` at the second `at`; the line is without sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin<'l> {
    #[serde(borrow)]
    pub version: Cow<'l, str>,
    pub interval_s: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Line<'_> {
    pub(super) fn with_sums(self, sums: Booking, mode: BookingMode) -> Self {
        let Booking { ok, over, units, back, refused, policy, unknown } = sums;
        Self { ok, over, units, back, refused, policy, unknown, mode: mode.into_str().into(), ..self }
    }

    pub fn sums(&self) -> Booking {
        let Self { ok, over, units, back, refused, policy, unknown, .. } = *self;
        Booking { ok, over, units, back, refused, policy, unknown }
    }

    /// Appends the line, which ends with a line feed.
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        serde_json::to_writer(&mut *text, self).expect("a line has only texts and numbers");
        text.push(b'\n');
    }
}

/// Returns a counter's entries: their values, or the hash or pattern in the key.
pub(crate) fn entries_of(key: &str) -> Vec<Cow<'static, str>> {
    let Some(parsed) = parse_key(key) else { return vec![key.to_owned().into()] };
    let entries = parsed.entries.iter().map(|(key, value)| format!("{}={}", key.text(), value.text()).into());
    entries.chain(parsed.tail.clone().map(Into::into)).collect()
}
