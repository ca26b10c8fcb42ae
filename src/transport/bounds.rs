//! What every door checks of a request before it is decided. Knows sizes and ranges, not wire formats.

use crate::engine::{Descriptor, LimitOverride, Period, Request, Unit};

/// How large a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Descriptors in one request.
    pub max_descriptors: usize,
    /// Entries in one descriptor.
    pub max_entries: usize,
    /// Bytes in one domain, key or value.
    pub max_value_bytes: usize,
}

/// Why a request is not decided: the caller's mistake. Names the place, never the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No domain.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// The domain's name is too long.
    #[error("rate limit domain has {bytes} bytes, more than the {max} allowed")]
    LongDomain {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// Nothing to decide.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// Too much to decide.
    #[error("{count} descriptors, more than the {max} allowed")]
    ManyDescriptors {
        /// How many.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// Something is wrong with one descriptor.
    #[error("descriptor {place}: {cause}")]
    Descriptor {
        /// Which, from 0.
        place: usize,
        /// What.
        cause: DescriptorError,
    },
}

/// What is wrong with one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// It names nothing.
    #[error("no entries")]
    NoEntries,
    /// It has too many entries.
    #[error("{count} entries, more than the {max} allowed")]
    ManyEntries {
        /// How many.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// An entry without a key.
    #[error("entry {entry}: the key must not be empty")]
    EmptyKey {
        /// Which entry, from 0.
        entry: usize,
    },
    /// A key or value is too long.
    #[error("entry {entry}: {bytes} bytes in the {part}, more than the {max} allowed")]
    LongText {
        /// Which entry, from 0.
        entry: usize,
        /// `key` or `value`.
        part: &'static str,
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The limit that came along names no unit of time, or one that is not defined.
    #[error("the limit's unit {0} is not defined")]
    UndefinedUnit(i32),
    /// The limit that came along has no period.
    #[error("the limit's unit_multiplier must not be 0")]
    ZeroMultiplier,
    /// The limit that came along counts over more than 366 days.
    #[error("the limit's period is longer than 366 days")]
    LongPeriod,
}

impl DescriptorError {
    /// Says which descriptor it is about.
    #[must_use]
    pub fn at(self, place: usize) -> RequestError {
        RequestError::Descriptor { place, cause: self }
    }
}

impl Bounds {
    /// Bytes of one whole request, in whatever spelling: more than all headers that Envoy accepts put together, and
    /// several of the largest values.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        self.max_value_bytes.saturating_mul(4).max(256 * 1024)
    }

    /// Passes `request` on if it is complete and within bounds.
    ///
    /// # Errors
    /// [`RequestError`] for the first thing that is not.
    pub fn admit(&self, request: Request) -> Result<Request, RequestError> {
        let max = self.max_value_bytes;
        if request.domain.is_empty() {
            return Err(RequestError::EmptyDomain);
        }
        if request.domain.len() > max {
            let bytes = request.domain.len();
            return Err(RequestError::LongDomain { bytes, max });
        }
        let (count, max) = (request.descriptors.len(), self.max_descriptors);
        if count == 0 {
            return Err(RequestError::NoDescriptors);
        }
        if count > max {
            return Err(RequestError::ManyDescriptors { count, max });
        }
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            self.check(descriptor).map_err(|cause| cause.at(place))?;
        }
        Ok(request)
    }

    fn check(&self, descriptor: &Descriptor) -> Result<(), DescriptorError> {
        let (count, max) = (descriptor.entries.len(), self.max_entries);
        if count == 0 {
            return Err(DescriptorError::NoEntries);
        }
        if count > max {
            return Err(DescriptorError::ManyEntries { count, max });
        }
        for (place, entry) in descriptor.entries.iter().enumerate() {
            if entry.key.is_empty() {
                return Err(DescriptorError::EmptyKey { entry: place });
            }
            self.check_text(place, "key", &entry.key)?;
            self.check_text(place, "value", &entry.value)?;
        }
        Ok(())
    }

    fn check_text(&self, entry: usize, part: &'static str, text: &str) -> Result<(), DescriptorError> {
        let (bytes, max) = (text.len(), self.max_value_bytes);
        if bytes <= max {
            return Ok(());
        }
        Err(DescriptorError::LongText { entry, part, bytes, max })
    }
}

/// A limit as it came with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentLimit {
    /// Units per period; 0 blocks.
    pub requests_per_unit: u32,
    /// The number of a unit in the wire's `RateLimitUnit`, whatever it is.
    pub unit: i32,
    /// How many units make the period.
    pub multiplier: Option<u32>,
}

impl TryFrom<SentLimit> for LimitOverride {
    type Error = DescriptorError;

    fn try_from(sent: SentLimit) -> Result<Self, DescriptorError> {
        // The numbers of envoy.type.v3.RateLimitUnit, which has no week.
        let unit = match sent.unit {
            1 => Unit::Second,
            2 => Unit::Minute,
            3 => Unit::Hour,
            4 => Unit::Day,
            5 => Unit::Month,
            6 => Unit::Year,
            other => return Err(DescriptorError::UndefinedUnit(other)),
        };
        let multiplier = sent.multiplier.unwrap_or(1);
        if multiplier == 0 {
            return Err(DescriptorError::ZeroMultiplier);
        }
        Ok(Self {
            requests_per_unit: sent.requests_per_unit,
            period: Period::new(unit, multiplier).ok_or(DescriptorError::LongPeriod)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Entry;

    const BOUNDS: Bounds = Bounds { max_descriptors: 2, max_entries: 2, max_value_bytes: 4 };

    fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> Request {
        let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
        let descriptor = |entries: &&[(&str, &str)]| Descriptor {
            entries: entries.iter().map(entry).collect(),
            ..Descriptor::default()
        };
        Request {
            domain: domain.to_owned(),
            hits_addend: 0,
            descriptors: descriptors.iter().map(descriptor).collect(),
        }
    }

    #[test]
    fn each_mistake_is_named_with_its_place() {
        let pair = ("k", "v");
        let table: &[(Request, &str)] = &[
            (request("", &[&[pair]]), "rate limit domain must not be empty"),
            (request("abcde", &[&[pair]]), "rate limit domain has 5 bytes, more than the 4 allowed"),
            (request("d", &[]), "rate limit descriptor list must not be empty"),
            (request("d", &[&[pair], &[pair], &[pair]]), "3 descriptors, more than the 2 allowed"),
            (request("d", &[&[pair], &[]]), "descriptor 1: no entries"),
            (request("d", &[&[pair, pair, pair]]), "descriptor 0: 3 entries, more than the 2 allowed"),
            (request("d", &[&[pair, ("", "v")]]), "descriptor 0: entry 1: the key must not be empty"),
            (
                request("d", &[&[("k", "12345")]]),
                "descriptor 0: entry 0: 5 bytes in the value, more than the 4 allowed",
            ),
            (
                request("d", &[&[("12345", "")]]),
                "descriptor 0: entry 0: 5 bytes in the key, more than the 4 allowed",
            ),
        ];
        for (request, message) in table {
            let error = BOUNDS.admit(request.clone()).expect_err(message);
            assert_eq!(error.to_string(), *message);
        }
    }

    #[test]
    fn a_request_at_the_bounds_is_admitted_unchanged() {
        let full = request("1234", &[&[("abcd", "1234"), ("k", "")], &[("k", "v")]]);
        assert_eq!(BOUNDS.admit(full.clone()), Ok(full));
    }

    #[test]
    fn a_limit_that_came_along_needs_a_period() {
        let sent = |unit, multiplier| SentLimit { requests_per_unit: 0, unit, multiplier };
        let period = |sent| LimitOverride::try_from(sent).map(|limit| limit.period.seconds());
        // Unit, multiplier, seconds or the reason.
        assert_eq!(period(sent(1, None)), Ok(1));
        assert_eq!(period(sent(2, Some(10))), Ok(600));
        assert_eq!(period(sent(6, Some(1))), Ok(365 * 86_400));
        assert_eq!(period(sent(0, None)), Err(DescriptorError::UndefinedUnit(0)));
        assert_eq!(period(sent(7, None)), Err(DescriptorError::UndefinedUnit(7)));
        assert_eq!(period(sent(-1, None)), Err(DescriptorError::UndefinedUnit(-1)));
        assert_eq!(period(sent(1, Some(0))), Err(DescriptorError::ZeroMultiplier));
        assert_eq!(period(sent(6, Some(2))), Err(DescriptorError::LongPeriod));
        assert_eq!(period(sent(6, Some(u32::MAX))), Err(DescriptorError::LongPeriod));
    }
}
