//! What a caller asks, independent of the transport, as sent and as checked: descriptors and their costs.
//!
//! Callers' and recorded requests start as [`RawRequest`]. Only [`RawRequest::validate`] turns them into a [`Request`].
//! A [`Request`] built by a map only needs its size checked: [`Bounds::check`]. A request then passes through `plan`,
//! `store` and `decision`.

pub(crate) mod decision;
pub(crate) mod hold;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod receipt;
pub(crate) mod store;
pub mod wire;

use serde::Deserialize;

use self::pause::{PAUSE_KEY, Pause};
use self::receipt::{RECEIPT_KEY, RENEW_KEY, Receipt, UnreadableReceipt};
use self::wire::json::{
    default_if_null, entries, objects, optional_number, optional_object, text, unit, unsigned_number,
};
use crate::limit::algorithm::Cost;
use crate::limit::key::Entry;
use crate::limit::period::{Period, request_unit};

/// Asks if an action may proceed. The answer has a status per descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Selects the rules.
    pub domain: String,
    /// Units for every descriptor without its own `hits`; 0 means 1.
    pub hits_addend: u32,
    /// In the order of the statuses in the answer.
    pub descriptors: Vec<Descriptor>,
    /// The request's connection, for fair queueing in a store. Does not affect decisions.
    pub caller: Caller,
}

/// The number of a request's connection. A store with a queue serves connections in turn, so that one does not delay
/// another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller(pub u32);

impl Request {
    pub fn cost(&self, descriptor: &Descriptor) -> Cost {
        let hits = self.hits(descriptor);
        if descriptor.is_refund { Cost::refund(hits) } else { Cost::take(hits) }
    }

    /// Makes the request reserve for a hold or, with the reservation's receipt, commit it.
    pub fn set_hold(&mut self, receipt: Option<&Receipt>) {
        for descriptor in &mut self.descriptors {
            (descriptor.is_hold, descriptor.is_whole_cost) = (true, true);
            descriptor.attached = receipt.map(|receipt| Box::new(Attached::Receipt(Ok(receipt.clone()))));
        }
    }

    /// Units to take or return.
    pub(crate) fn hits(&self, descriptor: &Descriptor) -> u64 {
        descriptor.hits.unwrap_or_else(|| u64::from(self.hits_addend.max(1)))
    }
}

/// What to limit, as in Envoy: entries such as `user=alice`, from general to specific.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Matched in order from the root of the rule tree. Without entries no rule matches.
    pub entries: Vec<Entry>,
    /// A limit sent with the request, which replaces the limits of the rules.
    pub limit: Option<LimitOverride>,
    /// Units for this descriptor; `Some(0)` is a peek.
    pub hits: Option<u64>,
    /// `true` if the hits are returned instead of taken.
    pub is_refund: bool,
    /// `true` if the hits are the whole cost of a request without an earlier check, so a limit with `reserve` takes all
    /// of them. Maps set this for calls to `/check` and lines of a log.
    pub is_whole_cost: bool,
    /// `true` for a part of a hold ([`Request::set_hold`]): charges are prepaid, and a receipt settles every limit.
    pub is_hold: bool,
    /// What the last entry says if it names no value. Of these, only a renewal can deny.
    pub attached: Option<Box<Attached>>,
}

/// Keys of entries that do not name a value: the last entry of a descriptor. Rules cannot match them.
pub const RESERVED_KEYS: [&str; 3] = [RECEIPT_KEY, PAUSE_KEY, RENEW_KEY];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    /// The receipt of an earlier request whose real cost is the descriptor's hits. Such a descriptor is a settle: it
    /// books only the difference to the receipt, and ignores `is_refund`.
    Receipt(Result<Receipt, UnreadableReceipt>),
    /// The receipt of an earlier request, whose slots it keeps. Limits of another kind are left out, and hits do not
    /// matter.
    Renewal(Result<Receipt, UnreadableReceipt>),
    /// Reports a pause requested by a third party; `None` if it is unreadable. The descriptor costs nothing, whatever
    /// its hits.
    Pause(Option<Pause>),
}

impl Attached {
    /// Reads an entry with one of the [`RESERVED_KEYS`].
    pub(crate) fn of_entry(entry: &Entry) -> Self {
        match entry.key.as_str() {
            PAUSE_KEY => Self::Pause(Pause::parse(&entry.value)),
            RENEW_KEY => Self::Renewal(entry.value.parse()),
            _ => Self::Receipt(entry.value.parse()),
        }
    }
}

impl Descriptor {
    /// `Some` if the descriptor is a settle.
    pub fn receipt(&self) -> Option<&Result<Receipt, UnreadableReceipt>> {
        if let Some(Attached::Receipt(receipt)) = self.attached.as_deref() { Some(receipt) } else { None }
    }

    /// `Some` if the descriptor is a renewal.
    pub fn renewal(&self) -> Option<&Result<Receipt, UnreadableReceipt>> {
        if let Some(Attached::Renewal(receipt)) = self.attached.as_deref() { Some(receipt) } else { None }
    }

    /// `Some` if the descriptor reports a pause.
    pub fn pause(&self) -> Option<Option<Pause>> {
        if let Some(Attached::Pause(pause)) = self.attached.as_deref() { Some(*pause) } else { None }
    }
}

/// A limit sent with a request. It never shares a counter with a rule's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// Units per period; 0 blocks.
    pub requests_per_unit: u32,
    pub period: Period,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub max_descriptors: usize,
    /// Per descriptor.
    pub max_entries: usize,
    /// For a domain, a key or a value.
    pub max_value_bytes: usize,
}

/// Why a request cannot be decided. Messages locate the mistake but never show a value of the request. `descriptor` and
/// `entry` count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    #[error("rate limit domain has {bytes} bytes, more than the {max} allowed")]
    LongDomain { bytes: usize, max: usize },
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    #[error("{count} descriptors, more than the {max} allowed")]
    ManyDescriptors { count: usize, max: usize },
    #[error("descriptor {descriptor}: {count} entries, more than the {max} allowed")]
    ManyEntries { descriptor: usize, count: usize, max: usize },
    /// `part` is `key` or `value`.
    #[error(
        "descriptor {descriptor}: entry {entry}: {bytes} bytes in the {part}, more than the {max} allowed"
    )]
    LongText { descriptor: usize, entry: usize, part: &'static str, bytes: usize, max: usize },
    #[error("descriptor {descriptor}: the limit's unit {unit} is not defined")]
    UndefinedUnit { descriptor: usize, unit: i32 },
    #[error("descriptor {descriptor}: the limit's unit_multiplier must not be 0")]
    ZeroMultiplier { descriptor: usize },
    #[error("descriptor {descriptor}: the limit's period is longer than 366 days")]
    LongPeriod { descriptor: usize },
}

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RawRequest {
    #[serde(deserialize_with = "text")]
    pub domain: String,
    #[serde(deserialize_with = "objects")]
    pub descriptors: Vec<RawDescriptor>,
    /// 0 means 1.
    #[serde(deserialize_with = "unsigned_number", alias = "hits_addend")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RawDescriptor {
    #[serde(deserialize_with = "entries")]
    pub entries: Vec<Entry>,
    #[serde(deserialize_with = "optional_object")]
    pub limit: Option<RawLimit>,
    #[serde(deserialize_with = "optional_number", alias = "hits_addend")]
    pub hits_addend: Option<u64>,
    #[serde(deserialize_with = "default_if_null", alias = "is_negative_hits")]
    pub is_negative_hits: bool,
}

/// `RateLimitOverride` of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RawLimit {
    #[serde(deserialize_with = "unsigned_number", alias = "requests_per_unit")]
    pub requests_per_unit: u32,
    /// A number of `envoy.type.v3.RateLimitUnit`, defined or not.
    #[serde(deserialize_with = "unit")]
    pub unit: i32,
    #[serde(deserialize_with = "optional_number", alias = "unit_multiplier")]
    pub unit_multiplier: Option<u32>,
}

impl RawRequest {
    /// Returns the request, without a caller, if it is complete and within `bounds`. Checks overrides first, because
    /// only their conversion can fail.
    ///
    /// # Errors
    /// [`RequestError`] for the first mistake.
    pub fn validate(self, bounds: &Bounds) -> Result<Request, RequestError> {
        // Checked before the conversion: a message may hold a hundred thousand empty descriptors.
        let (count, max) = (self.descriptors.len(), bounds.max_descriptors);
        if count > max {
            return Err(RequestError::ManyDescriptors { count, max });
        }
        // Collects in place: a descriptor is at most as large as its raw form.
        let raw = self.descriptors.into_iter().enumerate();
        let descriptors = raw.map(|(index, raw)| raw.convert(index)).collect::<Result<Vec<_>, _>>()?;
        let (domain, hits_addend, caller) = (self.domain, self.hits_addend, Caller::default());
        let request = Request { domain, hits_addend, descriptors, caller };
        bounds.check(&request)?;
        Ok(request)
    }
}

impl RawDescriptor {
    fn convert(mut self, index: usize) -> Result<Descriptor, RequestError> {
        let last = self.entries.pop_if(|last| RESERVED_KEYS.contains(&last.key.as_str()));
        Ok(Descriptor {
            entries: self.entries,
            limit: self.limit.map(|limit| limit.convert(index)).transpose()?,
            hits: self.hits_addend,
            is_refund: self.is_negative_hits,
            is_whole_cost: false,
            is_hold: false,
            attached: last.map(|last| Box::new(Attached::of_entry(&last))),
        })
    }
}

impl RawLimit {
    fn convert(self, descriptor: usize) -> Result<LimitOverride, RequestError> {
        let unit = request_unit(self.unit);
        let unit = unit.ok_or(RequestError::UndefinedUnit { descriptor, unit: self.unit })?;
        let multiplier = self.unit_multiplier.unwrap_or(1);
        if multiplier == 0 {
            return Err(RequestError::ZeroMultiplier { descriptor });
        }
        Ok(LimitOverride {
            requests_per_unit: self.requests_per_unit,
            period: Period::new(unit, multiplier).ok_or(RequestError::LongPeriod { descriptor })?,
        })
    }
}

impl Bounds {
    /// # Errors
    /// [`RequestError`] if the request is incomplete or larger than these bounds.
    pub fn check(&self, request: &Request) -> Result<(), RequestError> {
        let (bytes, max) = (request.domain.len(), self.max_value_bytes);
        if bytes == 0 {
            return Err(RequestError::EmptyDomain);
        }
        if bytes > max {
            return Err(RequestError::LongDomain { bytes, max });
        }
        if request.descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        let mut indexed = request.descriptors.iter().enumerate();
        indexed.try_for_each(|(index, descriptor)| self.check_descriptor(index, descriptor))
    }

    fn check_descriptor(&self, index: usize, descriptor: &Descriptor) -> Result<(), RequestError> {
        let (count, max) = (descriptor.entries.len(), self.max_entries);
        if count > max {
            return Err(RequestError::ManyEntries { descriptor: index, count, max });
        }
        for (entry, Entry { key, value }) in descriptor.entries.iter().enumerate() {
            for (part, text) in [("key", key), ("value", value)] {
                let (bytes, max) = (text.len(), self.max_value_bytes);
                if bytes > max {
                    return Err(RequestError::LongText { descriptor: index, entry, part, bytes, max });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { max_descriptors: 2, max_entries: 2, max_value_bytes: 4 };

    fn raw_request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RawRequest {
        let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
        let descriptor = |entries: &&[(&str, &str)]| RawDescriptor {
            entries: entries.iter().map(entry).collect(),
            ..RawDescriptor::default()
        };
        RawRequest {
            domain: domain.to_owned(),
            hits_addend: 0,
            descriptors: descriptors.iter().map(descriptor).collect(),
        }
    }

    #[test]
    fn each_mistake_is_named_with_its_place() {
        let pair = ("k", "v");
        let table: Vec<(RawRequest, &str)> = vec![
            (raw_request("", &[&[pair]]), "rate limit domain must not be empty"),
            (raw_request("abcde", &[&[pair]]), "rate limit domain has 5 bytes, more than the 4 allowed"),
            (raw_request("d", &[]), "rate limit descriptor list must not be empty"),
            (raw_request("d", &[&[pair], &[pair], &[pair]]), "3 descriptors, more than the 2 allowed"),
            (raw_request("d", &[&[pair, pair, pair]]), "descriptor 0: 3 entries, more than the 2 allowed"),
            (
                raw_request("d", &[&[("k", "12345")]]),
                "descriptor 0: entry 0: 5 bytes in the value, more than the 4 allowed",
            ),
            (
                raw_request("d", &[&[("12345", "")]]),
                "descriptor 0: entry 0: 5 bytes in the key, more than the 4 allowed",
            ),
        ];
        for (raw, message) in table {
            let error = raw.validate(&BOUNDS).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_request_at_the_bounds_is_valid_and_unchanged() {
        let full = raw_request("1234", &[&[("abcd", "1234"), ("k", "")], &[("k", "v")]]);
        let request = full.validate(&BOUNDS).expect("within bounds");
        let pairs = |descriptor: &Descriptor| {
            let entries = descriptor.entries.iter();
            entries.map(|entry| format!("{}={}", entry.key, entry.value)).collect::<Vec<_>>()
        };
        let descriptors: Vec<_> = request.descriptors.iter().map(pairs).collect();
        assert_eq!(request.domain, "1234");
        assert_eq!(descriptors, [vec!["abcd=1234", "k="], vec!["k=v"]]);
    }

    #[test]
    fn descriptors_without_entries_and_empty_keys_are_valid() {
        let request = raw_request("d", &[&[], &[("", "v")]]).validate(&BOUNDS).expect("valid");
        let entries: Vec<_> = request.descriptors.iter().map(|descriptor| descriptor.entries.len()).collect();
        assert_eq!(entries, [0, 1]);
    }

    #[test]
    fn a_mistake_in_a_limit_comes_before_all_others() {
        let limit = Some(RawLimit { requests_per_unit: 1, unit: 99, unit_multiplier: None });
        let descriptors = vec![RawDescriptor::default(), RawDescriptor { limit, ..RawDescriptor::default() }];
        let raw = RawRequest { descriptors, ..RawRequest::default() };
        let error = raw.validate(&BOUNDS).expect_err("an undefined unit");
        assert_eq!(error.to_string(), "descriptor 1: the limit's unit 99 is not defined");
    }

    #[test]
    fn a_limit_in_a_request_needs_a_period() {
        let raw = |unit, unit_multiplier| RawLimit { requests_per_unit: 0, unit, unit_multiplier };
        let period = |raw| RawLimit::convert(raw, 3).map(|limit| limit.period.seconds());
        let undefined = |unit| Err(RequestError::UndefinedUnit { descriptor: 3, unit });
        // Unit, multiplier; seconds or the reason.
        assert_eq!(period(raw(1, None)), Ok(1));
        assert_eq!(period(raw(2, Some(10))), Ok(600));
        assert_eq!(period(raw(6, Some(1))), Ok(365 * 86_400));
        assert_eq!(period(raw(0, None)), undefined(0));
        assert_eq!(period(raw(7, None)), Ok(7 * 86_400));
        assert_eq!(period(raw(8, None)), undefined(8));
        assert_eq!(period(raw(-1, None)), undefined(-1));
        assert_eq!(period(raw(1, Some(0))), Err(RequestError::ZeroMultiplier { descriptor: 3 }));
        assert_eq!(period(raw(6, Some(2))), Err(RequestError::LongPeriod { descriptor: 3 }));
        assert_eq!(period(raw(6, Some(u32::MAX))), Err(RequestError::LongPeriod { descriptor: 3 }));
    }
}
