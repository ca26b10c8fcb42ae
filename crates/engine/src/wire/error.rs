//! What makes a request invalid. Messages name the place of a mistake, never the value.

/// Why a request cannot be decided.
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
    /// The descriptor at `index`, from 0.
    #[error("descriptor {index}: {cause}")]
    Descriptor { index: usize, cause: DescriptorError },
}

/// What makes one descriptor invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    #[error("{count} entries, more than the {max} allowed")]
    ManyEntries { count: usize, max: usize },
    /// Of the entry at `index`, from 0. `part` is `key` or `value`.
    #[error("entry {index}: {bytes} bytes in the {part}, more than the {max} allowed")]
    LongText { index: usize, part: &'static str, bytes: usize, max: usize },
    #[error("the limit's unit {0} is not defined")]
    UndefinedUnit(i32),
    #[error("the limit's unit_multiplier must not be 0")]
    ZeroMultiplier,
    #[error("the limit's period is longer than 366 days")]
    LongPeriod,
}

impl DescriptorError {
    /// The error of the request, with the number of the descriptor, from 0.
    #[must_use]
    pub fn at(self, index: usize) -> RequestError {
        RequestError::Descriptor { index, cause: self }
    }
}
