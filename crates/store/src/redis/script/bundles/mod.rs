//! Finds what a batch's requests can share; no answer depends on it. Equal single charges to one counter are sent once
//! with their number, unless a request between them uses the counter differently. If no key repeats, requests that
//! differ only in their keys are sent next to each other. lua/batch.lua describes the reply.

#[cfg(test)]
mod tests;

use std::hash::BuildHasher as _;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use super::encoding::{EncodedRequest, RequestReply};
use super::layout::RepeatRule;

type AnswerNumbers = SmallVec<[i64; 4]>;

#[derive(Debug)]
pub(super) struct RequestBundles {
    /// In the order of sending.
    bundles: Vec<RequestBundle>,
    /// For each request, its bundle's index.
    bundle_of: Vec<usize>,
}

/// Several requests with an equal charge, or one request of any kind.
#[derive(Clone, Copy, Debug)]
struct RequestBundle {
    /// Index of its first request.
    first: usize,
    size: u16,
}

impl RequestBundles {
    /// Returns the bundles of these requests, which are in order of arrival, and whether a key is sent more than once.
    /// `None` if each request is sent alone, in order of arrival.
    pub(super) fn find<'a>(
        requests: impl ExactSizeIterator<Item = &'a EncodedRequest> + Clone,
    ) -> (Option<Self>, bool) {
        let keys: usize = requests.clone().map(EncodedRequest::key_count).sum();
        if keys < 2 {
            return (None, false);
        }
        let mut counters = UsedCounters::with_capacity(keys);
        let mut bundles: Option<Self> = None;
        for (index, request) in requests.clone().enumerate() {
            let next_bundle = bundles.as_ref().map_or(index, Self::count);
            if let Some(bundle) = counters.join_or_open(request, next_bundle) {
                bundles.get_or_insert_with(|| Self::one_for_each(index)).join(bundle);
            } else if let Some(bundles) = &mut bundles {
                bundles.open(index);
            }
        }
        // Two requests are always next to each other.
        if requests.len() > 2 && !counters.keys_repeat && are_mixed(requests.clone()) {
            let requests: Vec<&EncodedRequest> = requests.collect();
            bundles.get_or_insert_with(|| Self::one_for_each(requests.len())).sort(&requests);
        }
        (bundles, counters.keys_repeat)
    }

    /// Number of bundles sent.
    pub(super) fn count(&self) -> usize {
        self.bundles.len()
    }

    /// Returns each bundle's first request and size, in the order of sending.
    pub(super) fn sent<'a>(
        &self,
        requests: &[&'a EncodedRequest],
    ) -> impl Iterator<Item = (&'a EncodedRequest, u16)> + Clone {
        self.bundles.iter().map(|bundle| (requests[bundle.first], bundle.size))
    }

    fn one_for_each(requests: usize) -> Self {
        let bundles = (0..requests).map(|first| RequestBundle { first, size: 1 }).collect();
        Self { bundles, bundle_of: (0..requests).collect() }
    }

    fn join(&mut self, bundle: usize) {
        self.bundles[bundle].size += 1;
        self.bundle_of.push(bundle);
    }

    /// Adds the next request, which has this index, as a bundle.
    fn open(&mut self, request: usize) {
        self.bundle_of.push(self.bundles.len());
        self.bundles.push(RequestBundle { first: request, size: 1 });
    }

    /// Moves requests with equal bytes, and so of one kernel, next to each other. A call is decided at one instant,
    /// where the order matters only among requests to one counter.
    fn sort(&mut self, requests: &[&EncodedRequest]) {
        let mut order: Vec<usize> = (0..self.bundles.len()).collect();
        order.sort_by_key(|&bundle| {
            let RequestBundle { first, size } = self.bundles[bundle];
            (requests[first].bytes(), size > 1)
        });
        let mut moved_to = vec![0; order.len()];
        for (index, &bundle) in order.iter().enumerate() {
            moved_to[bundle] = index;
        }
        self.bundles = order.iter().map(|&bundle| self.bundles[bundle]).collect();
        for bundle in &mut self.bundle_of {
            *bundle = moved_to[*bundle];
        }
    }

    /// Splits the reply to the bundles into the answers to their requests, in order of arrival. `numbers` are the
    /// integers after the time. `None` if the script cannot have returned them.
    pub(super) fn split(
        &self,
        requests: &[&EncodedRequest],
        now_us: u64,
        numbers: &[i64],
    ) -> Option<Vec<RequestReply>> {
        let mut rest = numbers;
        let mut answers: Vec<AnswerNumbers> = Vec::with_capacity(self.bundle_of.len());
        // For each bundle, its next answer's index.
        let mut next = Vec::with_capacity(self.bundles.len());
        for bundle in &self.bundles {
            next.push(answers.len());
            rest = push_answers(&mut answers, requests[bundle.first], bundle.size, rest)?;
        }
        let replies = self.bundle_of.iter().map(|&bundle| {
            let numbers = std::mem::take(&mut answers[next[bundle]]);
            next[bundle] += 1;
            RequestReply { now_us, numbers }
        });
        rest.is_empty().then(|| replies.collect())
    }
}

/// `true` if requests with equal bytes may not be next to each other.
fn are_mixed<'a>(requests: impl Iterator<Item = &'a EncodedRequest>) -> bool {
    let mut all = requests.map(EncodedRequest::bytes);
    let first = all.next();
    all.any(|bytes| Some(bytes) != first)
}

/// Counters used by the requests so far.
struct UsedCounters<'a> {
    by_key: HashTable<UsedCounter<'a>>,
    hasher: DefaultHashBuilder,
    /// `true` if a key is sent more than once.
    keys_repeat: bool,
}

struct UsedCounter<'a> {
    key: &'a str,
    /// The bundle that used the counter last, if later requests can join it.
    open: Option<OpenBundle<'a>>,
}

/// A bundle that requests equal to its first one can join while no other request uses their counter.
struct OpenBundle<'a> {
    first: &'a EncodedRequest,
    /// Index in [`RequestBundles::bundles`].
    index: usize,
    size: u16,
}

impl<'a> UsedCounters<'a> {
    fn with_capacity(keys: usize) -> Self {
        let by_key = HashTable::with_capacity(keys);
        Self { by_key, hasher: DefaultHashBuilder::default(), keys_repeat: false }
    }

    /// Returns the index of the bundle that the request joins. If there is none, the request opens one at `next`.
    fn join_or_open(&mut self, request: &'a EncodedRequest, next: usize) -> Option<usize> {
        let may_repeat = request.repeat_rule().is_some();
        for key in request.keys() {
            let open = may_repeat.then_some(OpenBundle { first: request, index: next, size: 1 });
            let hash = self.hasher.hash_one(key);
            match self.by_key.entry(hash, |used| used.key == key, |used| self.hasher.hash_one(used.key)) {
                Entry::Vacant(vacant) => {
                    vacant.insert(UsedCounter { key, open });
                }
                Entry::Occupied(mut used) => {
                    if let Some(bundle) = &mut used.get_mut().open
                        && bundle.accepts(request)
                    {
                        bundle.size += 1;
                        return Some(bundle.index);
                    }
                    used.get_mut().open = open;
                    self.keys_repeat = true;
                }
            }
        }
        None
    }
}

impl OpenBundle<'_> {
    /// `true` if a request with the same key is equal, and the bundle is not full.
    fn accepts(&self, request: &EncodedRequest) -> bool {
        self.first.bytes() == request.bytes() && self.size < u16::MAX
    }
}

/// Adds the answers to `size` requests like this one, as if each had been sent alone. Takes them from the reply's
/// front, and returns the rest. `None` if the script cannot have returned these integers.
///
/// The reply to equal charges consists of runs: charges that each add the same to the counter, then charges that leave
/// it unchanged. So it is as short for a thousand requests as for two.
fn push_answers<'n>(
    answers: &mut Vec<AnswerNumbers>,
    request: &EncodedRequest,
    size: u16,
    reply: &'n [i64],
) -> Option<&'n [i64]> {
    let width = request.reply_width;
    let Some(rule) = request.repeat_rule().filter(|_| size > 1) else {
        let (answer, rest) = reply.split_at_checked(width)?;
        answers.push(answer.into());
        return Some(rest);
    };
    let step = Step::new(rule, request);
    let mut rest = reply;
    let mut missing = u64::from(size);
    while missing > 0 {
        let run;
        (run, rest) = rest.split_at_checked(1 + width)?;
        let charges = run[0].unsigned_abs();
        missing = missing.checked_sub(charges).filter(|_| charges > 0)?;
        let mut counter = AnswerNumbers::from(&run[1..]);
        let is_over = counter[0] < 0;
        if is_over {
            counter[0] = -1 - counter[0];
        }
        for _ in 0..charges {
            let mut answer = counter.clone();
            if is_over {
                answer[0] = -1 - answer[0];
            }
            answers.push(answer);
            if run[0] > 0 {
                step.add_to(&mut counter);
            }
        }
    }
    Some(rest)
}

/// What each charge adds to the first two integers of a counter.
#[derive(Debug)]
struct Step {
    added: [i64; 2],
    /// The second integer is a fraction of the first, in parts of this size.
    denominator: Option<i64>,
}

impl Step {
    fn new(kind: RepeatRule, request: &EncodedRequest) -> Self {
        let (added, denominator) = match kind {
            RepeatRule::Units => ([0, request.parameter(0)], None),
            RepeatRule::Tokens => ([0, -request.parameter(0)], None),
            RepeatRule::Time => ([request.parameter(0), 0], None),
            RepeatRule::TimeAndFraction => {
                ([request.parameter(0), request.parameter(1)], Some(request.parameter(4)))
            }
        };
        Self { added, denominator }
    }

    /// Saturates: a server can send any integer, and the code that builds the outcome checks it.
    fn add_to(&self, counter: &mut [i64]) {
        for (number, added) in counter.iter_mut().zip(self.added) {
            *number = number.saturating_add(added);
        }
        if let (Some(denominator), [whole, part]) = (self.denominator, counter)
            && *part >= denominator
        {
            *part -= denominator;
            *whole = whole.saturating_add(1);
        }
    }
}
