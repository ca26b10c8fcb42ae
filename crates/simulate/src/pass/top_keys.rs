//! The keys with the most denials.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::key_table::{Denials, KeyStatistics, KeyTable};
use super::tally::Row;
use super::tried::SweptLimit;
use crate::report::DeniedKey;

const MAX_KEYS: usize = 50;

/// What the report shows of keys and requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown<'a> {
    /// `true`: plain keys; `false`: hashed.
    pub keys: bool,
    pub good: bool,
    pub in_force: bool,
    /// The tried limits, unless it is a fixed window.
    pub swept: Option<&'a SweptLimit>,
}

/// The keys of a row with the most requests over the limit; ties by key.
pub(super) fn top_denied(index: usize, row: &Row, keys: &KeyTable, shown: Shown<'_>) -> Vec<DeniedKey> {
    let kept: HashMap<&str, &KeyStatistics> = keys
        .keys_of(index)
        .filter(|key| key.over() > 0)
        .filter_map(|key| Some((&*key.denials.as_ref()?.key, key)))
        .collect();
    let mut found: Vec<(u64, u64, &str)> = if keys.level() == 0 {
        kept.iter().map(|(key, statistics)| (statistics.over(), 0, *key)).collect()
    } else {
        row.heavy.keys().iter().map(|heavy| (heavy.count, heavy.error, &*heavy.key)).collect()
    };
    found.sort_unstable_by(|(a, _, key_a), (b, _, key_b)| b.cmp(a).then(key_a.cmp(key_b)));
    found.truncate(MAX_KEYS);
    found
        .into_iter()
        .map(|(over, error, key)| denied_key(over, error, key, kept.get(key).copied(), shown))
        .collect()
}

fn denied_key(
    over: u64,
    error: u64,
    key: &str,
    statistics: Option<&KeyStatistics>,
    shown: Shown<'_>,
) -> DeniedKey {
    let denials = statistics.and_then(|key| key.denials.as_deref());
    // The table counts a kept key exactly.
    let (over, error) = denials.map_or((over, error), |denials| (denials.over, 0));
    DeniedKey {
        key: shown_key(key, shown.keys),
        over,
        error,
        good_over: denials.filter(|_| shown.good).map(|denials| denials.good_over),
        asked: statistics.map(|key| u64::from(key.asked)),
        units: statistics.map(|key| key.units),
        in_force_over: denials.filter(|_| shown.in_force).map(|denials| denials.in_force_over),
        first_over_us: denials.map(|denials| denials.first_us),
        last_over_us: denials.map(|denials| denials.last_us),
        longest_denial_us: denials.map(Denials::longest_us),
        own_peak: statistics.map(|key| key.peaks.own.peak),
        kept_limit: statistics.zip(shown.swept).and_then(|(key, swept)| swept.smallest_kept(key.over_at)),
    }
}

/// The key itself, or the first 16 hexadecimal digits of its SHA-256.
pub(super) fn shown_key(key: &str, shows_keys: bool) -> String {
    if shows_keys {
        return key.to_owned();
    }
    base::hex(&Sha256::digest(key.as_bytes())[..8])
}
