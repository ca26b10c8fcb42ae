//! A call of the script: the requests of a batch as one command, and the reply to it as an answer for each request.
//! lua/counters.lua and lua/decide.lua describe the bytes.
//!
//! The plain way is one request after another, in the order of arrival. `groups` finds requests that can share what is
//! sent; without them a batch costs Redis more, and is decided the same.

use engine::StoreError;
use redis::Cmd;

use super::groups::RequestGroups;
use super::layout::{ALIKE, EQUAL, FEATURE_EQUAL, FEATURE_KEYS_REPEAT, FEATURE_ONE_BY_ONE};
use super::text::{SCRIPT, TEXT};
use super::wire::{Answer, EncodedRequest};

#[cfg(test)]
mod tests;

/// The time at which a batch is decided, and how long its counters are kept after they equal unused counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The server's time. Counters are kept a second longer, because a counter that expired early would admit too much.
    Now,
    /// A time that the caller chooses, in microseconds since the epoch, below 2^52. Counters still expire by the
    /// server's clock, so they are kept an hour longer: the caller's time may stand still meanwhile.
    At(u64),
}

/// How a call names the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptRef {
    /// `EVALSHA`: short, but a server that has not loaded the script answers NOSCRIPT.
    Sha1,
    /// `EVAL`: sends the whole text, and loads it.
    Text,
}

/// How the requests of one call are sent.
#[derive(Debug, Default)]
pub(crate) struct BatchLayout {
    /// `None` if each request is sent alone, in the order of arrival.
    groups: Option<RequestGroups>,
    /// Whether a key is sent more than once.
    keys_repeat: bool,
}

impl When {
    /// The time for the script, in microseconds: negative for the server's time.
    fn now(self) -> f64 {
        match self {
            Self::Now => -1.0,
            Self::At(now_us) => now_us as f64,
        }
    }

    fn grace_ms(self) -> f64 {
        match self {
            Self::Now => 1e3,
            Self::At(_) => 3.6e6,
        }
    }
}

impl BatchLayout {
    /// The layout for these requests, which are given in the order of arrival.
    pub(crate) fn new<'a>(requests: impl ExactSizeIterator<Item = &'a EncodedRequest> + Clone) -> Self {
        let (groups, keys_repeat) = RequestGroups::find(requests);
        Self { groups, keys_repeat }
    }

    /// How many groups are sent; `None` if each request is sent alone.
    pub(crate) fn groups(&self) -> Option<usize> {
        self.groups.as_ref().map(RequestGroups::count)
    }

    /// The command that decides the requests, the same as those given to [`BatchLayout::new`].
    pub(crate) fn command<'a>(
        &self,
        requests: impl Iterator<Item = &'a EncodedRequest> + Clone,
        when: When,
        script: ScriptRef,
    ) -> Cmd {
        match &self.groups {
            None => command(requests.map(|request| (request, 1)), self.keys_repeat, when, script),
            Some(groups) => {
                let requests: Vec<&EncodedRequest> = requests.collect();
                command(groups.sent(&requests), self.keys_repeat, when, script)
            }
        }
    }

    /// Splits the reply to the command into the answers to the requests, in the order of arrival.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the reply has another length.
    pub(crate) fn split_reply<'a>(
        &self,
        requests: impl Iterator<Item = &'a EncodedRequest> + Clone,
        numbers: &[i64],
    ) -> Result<Vec<Answer>, StoreError> {
        let answers = numbers.split_first().and_then(|(&now, rest)| {
            // A server's clock may be before 1970.
            let now_us = now.max(0).unsigned_abs();
            match &self.groups {
                None => split_in_order(requests.clone(), now_us, rest),
                Some(groups) => groups.split(&requests.clone().collect::<Vec<_>>(), now_us, rest),
            }
        });
        answers.ok_or_else(|| {
            let failure = match &self.groups {
                None => {
                    let expected: usize = requests.map(EncodedRequest::reply_width).sum();
                    format!("{} numbers instead of {}", numbers.len(), expected + 1)
                }
                Some(_) => format!("{} numbers that are no reply to these requests", numbers.len()),
            };
            StoreError::Malformed(failure)
        })
    }
}

/// The command that decides these requests in this order, each with the number of requests that it stands for.
/// `keys_repeat`: whether a key is sent more than once.
fn command<'a>(
    requests: impl Iterator<Item = (&'a EncodedRequest, u16)> + Clone,
    keys_repeat: bool,
    when: When,
    script: ScriptRef,
) -> Cmd {
    let (mut keys, mut bytes) = (0, 0);
    for (request, _) in requests.clone() {
        keys += request.key_count();
        bytes += request.size();
    }
    let mut command = Cmd::with_capacity(keys + 4, bytes + 96);
    match script {
        ScriptRef::Sha1 => command.arg("EVALSHA").arg(SCRIPT.get_hash()),
        ScriptRef::Text => command.arg("EVAL").arg(TEXT.as_str()),
    };
    command.arg(keys);
    for (request, _) in requests.clone() {
        for key in request.keys() {
            command.arg(key);
        }
    }
    command.arg(ScriptArgument::new(requests, keys_repeat, when, bytes).bytes);
    command
}

/// Splits the reply to requests that were sent one by one; `None` if it has another length.
fn split_in_order<'a>(
    requests: impl Iterator<Item = &'a EncodedRequest>,
    now_us: u64,
    numbers: &[i64],
) -> Option<Vec<Answer>> {
    let mut rest = numbers;
    let mut answers = Vec::with_capacity(requests.size_hint().0);
    for request in requests {
        let (answer, after) = rest.split_at_checked(request.reply_width())?;
        rest = after;
        answers.push(Answer { now_us, numbers: answer.into() });
    }
    rest.is_empty().then_some(answers)
}

/// Where the features begin: after the time and the time for which counters are kept.
const FEATURES_AT: usize = 16;

/// The argument of a call: its time and its requests without their keys.
struct ScriptArgument {
    bytes: Vec<u8>,
    /// The functions of the script that the call needs, and whether a key is sent more than once.
    features: u16,
}

impl ScriptArgument {
    /// The requests in this order, each with the number of requests that it stands for. `keys_repeat`: whether a key is
    /// sent more than once. `capacity`: about how many bytes they take.
    fn new<'a>(
        requests: impl Iterator<Item = (&'a EncodedRequest, u16)>,
        keys_repeat: bool,
        when: When,
        capacity: usize,
    ) -> Self {
        let features = if keys_repeat { FEATURE_KEYS_REPEAT } else { 0 };
        let mut argument = Self { bytes: Vec::with_capacity(capacity + 32), features };
        argument.bytes.extend([when.now(), when.grace_ms()].map(f64::to_le_bytes).as_flattened());
        argument.bytes.extend([0; 2]);
        let mut requests = requests.peekable();
        while let Some((request, size)) = requests.next() {
            if size > 1 {
                argument.push_equal(request, size);
            } else if !keys_repeat && request.may_be_alike() {
                let is_alike =
                    |&(next, size): &(&EncodedRequest, u16)| size == 1 && next.record() == request.record();
                let mut number = 1;
                while number < u16::MAX && requests.next_if(is_alike).is_some() {
                    number += 1;
                }
                argument.push_alike(request, number);
            } else {
                argument.push_one(request);
            }
        }
        argument.bytes[FEATURES_AT..FEATURES_AT + 2].copy_from_slice(&argument.features.to_le_bytes());
        argument
    }

    fn push_equal(&mut self, request: &EncodedRequest, size: u16) {
        self.features |= FEATURE_EQUAL | request.features();
        self.bytes.push(EQUAL);
        self.bytes.extend_from_slice(&size.to_le_bytes());
        self.bytes.extend_from_slice(request.record());
    }

    /// Adds requests that differ from this one in their keys only. `number` counts this one too.
    fn push_alike(&mut self, request: &EncodedRequest, number: u16) {
        match (u16::try_from(request.key_count()), u16::try_from(request.reply_width())) {
            (Ok(keys), Ok(width)) => {
                self.features |= request.alike_features();
                self.bytes.push(ALIKE);
                self.bytes.extend_from_slice([number, keys, width].map(u16::to_le_bytes).as_flattened());
                self.bytes.extend_from_slice(request.record());
            }
            _ => (0..number).for_each(|_| self.push_one(request)),
        }
    }

    fn push_one(&mut self, request: &EncodedRequest) {
        self.features |= FEATURE_ONE_BY_ONE | request.features();
        self.bytes.extend_from_slice(request.record());
    }
}
