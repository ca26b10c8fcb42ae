//! The most denied keys of the process. Counts are lower bounds.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{HashKey, HeavyKey, Quantity, RuleSet, parse_key};

use super::excepted::KeyException;
use super::mask::{MaskedKey, masked, row_id};
use super::steps::Steps;
use crate::telemetry::metrics::{CountedKeys, DeniedCharge, LimitRef};

/// Maximum limits with keys: the most denied ones.
const MOST_LIMITS: usize = 64;
/// Maximum keys per limit.
const MOST_KEYS: usize = 32;

#[derive(Debug)]
pub(super) struct DeniedTable {
    tag_key: HashKey,
    limits: HashMap<LimitRef, LimitKeys>,
}

/// Denied keys of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct LimitKeys {
    pub(super) keys: Vec<DeniedKey>,
    /// `true` if some denied keys were left out.
    pub(super) has_more: bool,
}

#[derive(Debug)]
pub(super) struct DeniedKey {
    pub(super) id: String,
    /// The counter's key, without the store's prefix.
    key: Box<str>,
    charge: DeniedCharge,
    pub(super) shown: MaskedKey,
    pub(super) denied: Steps,
    /// `true` if the counts changed in the last second.
    pub(super) has_changed: bool,
    /// The key's exception, as last looked up.
    exception: Option<KeyException>,
    is_looked_up: bool,
}

/// A denied key with its limit: enough to show or reset its counter.
#[derive(Clone, Debug)]
pub struct DeniedRow {
    pub id: String,
    pub key: Box<str>,
    pub charge: DeniedCharge,
    /// Label of the limit's domain.
    pub domain: Arc<str>,
    pub rule: Arc<str>,
    /// `name=value` as shown in the console.
    pub shown: String,
}

impl DeniedTable {
    pub(super) fn new(tag_key: HashKey) -> Self {
        Self { tag_key, limits: HashMap::new() }
    }

    /// Adds what one worker has counted in the last second.
    pub(super) fn add(&mut self, counted: CountedKeys, rules: &RuleSet, second: u64) {
        for limit in counted.limits {
            let known = self.limits.entry(limit.limit.clone()).or_default();
            for key in limit.into_keys() {
                known.add(key, &self.tag_key, rules, second);
            }
        }
        while self.limits.len() > MOST_LIMITS {
            let smallest =
                self.limits.iter().min_by_key(|(_, keys)| keys.rank()).map(|(limit, _)| limit.clone());
            let Some(smallest) = smallest else { return };
            self.limits.remove(&smallest);
        }
    }

    /// Forgets what was not denied for 15 minutes, and limits for which `is_in_force` is `false`.
    pub(super) fn advance(&mut self, second: u64, is_in_force: impl Fn(&LimitRef) -> bool) {
        self.limits.retain(|limit, keys| {
            keys.advance(second);
            !keys.keys.is_empty() && is_in_force(limit)
        });
    }

    /// Masks every key again, by new rules.
    pub(super) fn mask_again(&mut self, rules: &RuleSet) {
        for key in self.limits.values_mut().flat_map(|limit| &mut limit.keys) {
            key.shown = masked(&self.tag_key, rules, &key.key);
            key.is_looked_up = false;
        }
    }

    /// Looks up each key's exception if none is known or it has ended. `label_of` returns a limit's label.
    pub(super) fn find_exceptions<'l>(
        &mut self,
        rules: &RuleSet,
        end: u64,
        label_of: impl Fn(&LimitRef) -> Option<&'l Arc<str>>,
    ) {
        for (limit, keys) in &mut self.limits {
            let Some(label) = label_of(limit) else { continue };
            for key in &mut keys.keys {
                let is_over = key.exception.as_ref().is_some_and(|row| row.is_over(end));
                if !key.is_looked_up || is_over {
                    key.exception = KeyException::find(rules, &key.key, label, end);
                    key.is_looked_up = true;
                }
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&LimitRef, &LimitKeys)> {
        self.limits.iter()
    }

    pub(super) fn of_limit(&self, limit: &LimitRef) -> Option<&LimitKeys> {
        self.limits.get(limit)
    }

    /// Returns a counter key as it may be logged, by the current rules.
    pub(super) fn logged(&self, rules: &RuleSet, key: &str) -> String {
        let entries = shown_text(&masked(&self.tag_key, rules, key));
        let domain = parse_key(key).map(|parsed| parsed.domain.text().to_owned()).unwrap_or_default();
        format!("{domain} {entries} (row {})", row_id(&self.tag_key, key))
    }

    pub(super) fn find(&self, id: &str) -> Option<(&LimitRef, &DeniedKey)> {
        let keys = self.limits.iter().flat_map(|(limit, keys)| keys.keys.iter().map(move |key| (limit, key)));
        keys.into_iter().find(|(_, key)| key.id == id)
    }
}

impl LimitKeys {
    fn add(&mut self, counted: HeavyKey<DeniedCharge>, tag_key: &HashKey, rules: &RuleSet, second: u64) {
        let HeavyKey { key, count, error, value: charge } = counted;
        self.has_more |= error > 0;
        let mut place = self.keys.iter().position(|known| known.is_row_of(&key, &charge));
        let id = if place.is_none() { row_id(tag_key, &key) } else { String::new() };
        // A row keeps its id when its key gets another counter.
        place = place.or_else(|| self.keys.iter().position(|known| known.id == id));
        if let Some(place) = place {
            let known = &mut self.keys[place];
            known.denied.add(second, count - error);
            (known.charge, known.has_changed) = (charge, true);
            if *known.key != *key {
                (known.key, known.is_looked_up) = (key.into(), false);
            }
            return;
        }
        if self.keys.len() == MOST_KEYS {
            self.has_more = true;
            let smallest = self.keys.iter().enumerate().min_by_key(|(_, key)| key.denied.rank());
            if let Some((place, _)) = smallest {
                self.keys.swap_remove(place);
            }
        }
        let mut denied = Steps::default();
        denied.add(second, count - error);
        let shown = masked(tag_key, rules, &key);
        self.keys.push(DeniedKey {
            id,
            key: key.into(),
            charge,
            shown,
            denied,
            has_changed: true,
            exception: None,
            is_looked_up: false,
        });
    }

    fn advance(&mut self, second: u64) {
        for key in &mut self.keys {
            let before = key.denied.newest_steps(2);
            key.denied.advance(second);
            // A recently denied row's rate falls each second.
            key.has_changed = std::mem::take(&mut key.has_changed) || before > 0;
        }
        self.keys.retain(|key| key.denied.sum() > 0);
        self.has_more &= !self.keys.is_empty();
    }

    fn rank(&self) -> Option<(u64, u64)> {
        self.keys.iter().map(|key| key.denied.rank()).max()
    }
}

impl DeniedKey {
    /// `true` if a denial belongs to this row: it has the same counter, or one with the same entries and limit that an
    /// exception or a tier has replaced.
    fn is_row_of(&self, key: &str, charge: &DeniedCharge) -> bool {
        let has_rule = charge.rule != Quantity::Unlimited;
        *self.key == *key
            || has_rule && self.charge.rule == charge.rule && entries_part(&self.key) == entries_part(key)
    }

    /// Returns the key's exception. For a secret value only its denials reveal it.
    pub(super) fn exception(&self) -> Option<KeyException> {
        let is_denied_now = self.shown.is_secret && self.denied.newest_steps(2) > 0;
        let of_denial = || KeyException::of_denial(&self.charge).filter(|_| is_denied_now);
        self.exception.clone().or_else(of_denial)
    }

    /// The kernel of the rule's limit.
    pub(super) fn rule(&self) -> Quantity {
        self.charge.rule
    }

    pub(super) fn row(&self, (domain, rule): (Arc<str>, Arc<str>)) -> DeniedRow {
        let shown = shown_text(&self.shown);
        DeniedRow { id: self.id.clone(), key: self.key.clone(), charge: self.charge, domain, rule, shown }
    }
}

fn shown_text(key: &MaskedKey) -> String {
    key.entries.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Returns a counter key without its limit's fingerprint.
fn entries_part(key: &str) -> &str {
    key.split_once('#').map_or(key, |(entries, _)| entries)
}
