//! Builds a script call from requests, and splits its reply into their answers.
//!
//! Usually a call has one request with one charge, which the plain script of its kernel decides (lua/gcra_whole.lua,
//! ...). Any other call uses the batch script (lua/batch.lua). `bundles` only saves Redis work: it does not change a
//! decision. Entry point: [`BatchPlan`].

mod bundles;
mod encoding;
mod layout;
#[cfg(test)]
mod tests;
mod text;

use engine::StoreError;
use redis::Cmd;

use self::bundles::RequestBundles;
use self::layout::{EQUAL, LogUse};
use self::text::{BATCH, ROWS};

#[cfg(test)]
pub(crate) use self::encoding::outcome;
pub(crate) use self::encoding::{EncodedRequest, RequestReply, undone};
pub(crate) use self::layout::When;
pub(crate) use self::text::load;
pub use self::text::{Script, script_sha1, scripts};

/// How a call refers to its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptRef {
    /// `EVALSHA`: short, but a server that has not loaded this script answers NOSCRIPT.
    Sha1,
    /// `EVAL`: sends the whole source, and loads it.
    Text,
}

/// How to send the requests of one call.
#[derive(Debug, Default)]
pub(crate) struct BatchPlan {
    /// `None` if each request is sent alone, in order of arrival.
    bundles: Option<RequestBundles>,
    /// `true` if a key is sent more than once.
    keys_repeat: bool,
}

impl BatchPlan {
    /// `requests` are in order of arrival.
    pub(crate) fn new<'a>(requests: impl ExactSizeIterator<Item = &'a EncodedRequest> + Clone) -> Self {
        let (bundles, keys_repeat) = RequestBundles::find(requests);
        Self { bundles, keys_repeat }
    }

    /// Number of bundles sent; `None` if each request is sent alone.
    pub(crate) fn bundles(&self) -> Option<usize> {
        self.bundles.as_ref().map(RequestBundles::count)
    }

    /// Builds the command that decides the requests, which are those given to [`BatchPlan::new`]. It calls the plain
    /// script of the kernel for a single charge, and otherwise the batch script.
    pub(crate) fn command<'a>(
        &self,
        requests: impl Iterator<Item = &'a EncodedRequest> + Clone,
        when: When,
        script: ScriptRef,
    ) -> Cmd {
        let mut all = requests.clone();
        if let (Some(request), None) = (all.next(), all.next())
            && let Some((plain, charge)) = request.plain_charge()
        {
            let mut command = start_command(plain, script, request.keys(), request.size());
            command.arg([when.bytes().as_flattened(), charge].concat());
            return command;
        }
        match &self.bundles {
            None => self.batch_command(requests.map(|request| (request, 1)), when, script),
            Some(bundles) => self.batch_command(bundles.sent(&requests.collect::<Vec<_>>()), when, script),
        }
    }

    /// Builds the command that decides these requests in this order, each with the number of requests that it stands
    /// for.
    fn batch_command<'a>(
        &self,
        requests: impl Iterator<Item = (&'a EncodedRequest, u16)> + Clone,
        when: When,
        script: ScriptRef,
    ) -> Cmd {
        let bytes = requests.clone().map(|(request, _)| request.size()).sum();
        let keys = requests.clone().flat_map(|(request, _)| request.keys());
        let mut command = start_command(&BATCH, script, keys, bytes);
        command.arg(script_argument(requests, self.keys_repeat, when, bytes));
        command
    }

    /// Splits the reply into the answers to the requests, in order of arrival.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the reply has another length.
    pub(crate) fn split_reply<'a>(
        &self,
        requests: impl Iterator<Item = &'a EncodedRequest> + Clone,
        numbers: &[i64],
    ) -> Result<Vec<RequestReply>, StoreError> {
        let answers = numbers.split_first().and_then(|(&now, rest)| {
            // A server's clock can be before 1970.
            let now_us = now.max(0).unsigned_abs();
            match &self.bundles {
                None => split_in_order(requests.clone(), now_us, rest),
                Some(bundles) => bundles.split(&requests.clone().collect::<Vec<_>>(), now_us, rest),
            }
        });
        answers.ok_or_else(|| {
            let failure = match &self.bundles {
                None => {
                    let expected: usize = requests.map(|request| request.reply_width).sum();
                    format!("{} numbers instead of {}", numbers.len(), expected + 1)
                }
                Some(_) => format!("{} numbers that are no reply to these requests", numbers.len()),
            };
            StoreError::Malformed(failure)
        })
    }
}

/// Builds a call of lua/rows.lua.
pub(crate) fn rows_command(named_by: ScriptRef, keys: &[String], arguments: &[String]) -> Cmd {
    let bytes = arguments.iter().map(String::len).sum();
    let mut command = start_command(&ROWS, named_by, keys.iter().map(String::as_str), bytes);
    command.arg(arguments);
    command
}

/// Builds a command up to its keys. `bytes`: approximately how many bytes follow.
fn start_command<'a>(
    script: &Script,
    named_by: ScriptRef,
    keys: impl Iterator<Item = &'a str> + Clone,
    bytes: usize,
) -> Cmd {
    let count = keys.clone().count();
    let mut command = Cmd::with_capacity(count + 4, bytes + 96);
    match named_by {
        ScriptRef::Sha1 => command.arg("EVALSHA").arg(script.sha1()),
        ScriptRef::Text => command.arg("EVAL").arg(script.text()),
    };
    command.arg(count);
    for key in keys {
        command.arg(key);
    }
    command
}

/// Builds the batch script's argument, without keys, for these requests in this order, each with the number of requests
/// that it stands for. `keys_repeat`: `true` if a key is sent more than once. `capacity`: approximate size, bytes.
fn script_argument<'a>(
    requests: impl Iterator<Item = (&'a EncodedRequest, u16)> + Clone,
    keys_repeat: bool,
    when: When,
    capacity: usize,
) -> Vec<u8> {
    let log_use = requests.clone().map(|(request, _)| request.log_use).max().unwrap_or(LogUse::Nothing);
    let mut bytes = Vec::with_capacity(capacity + 32);
    bytes.extend(when.bytes().as_flattened());
    bytes.extend([u8::from(keys_repeat), log_use as u8]);
    let mut requests = requests.peekable();
    while let Some((request, size)) = requests.next() {
        let mut number = size;
        let is_alike =
            |&(next, next_size): &(&EncodedRequest, u16)| next_size == 1 && next.bytes() == request.bytes();
        while size == 1 && number < u16::MAX && requests.next_if(is_alike).is_some() {
            number += 1;
        }
        bytes.extend_from_slice(&number.to_le_bytes());
        if size > 1 {
            bytes.push(EQUAL);
        }
        bytes.extend_from_slice(request.bytes());
    }
    bytes
}

/// Splits the reply to requests that were sent one by one; `None` if it has another length.
fn split_in_order<'a>(
    requests: impl Iterator<Item = &'a EncodedRequest>,
    now_us: u64,
    numbers: &[i64],
) -> Option<Vec<RequestReply>> {
    let mut rest = numbers;
    let mut answers = Vec::with_capacity(requests.size_hint().0);
    for request in requests {
        let (answer, after) = rest.split_at_checked(request.reply_width)?;
        rest = after;
        answers.push(RequestReply { now_us, numbers: answer.into() });
    }
    rest.is_empty().then_some(answers)
}
