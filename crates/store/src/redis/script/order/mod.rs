//! In which order the requests of a call are sent. Requests with an equal single charge on one counter are sent once,
//! with their number, unless a request between them uses the counter in another way. Requests that differ in their
//! keys only are sent next to each other if no key is sent twice, and what is the same in them is sent once. No answer
//! depends on this: a call is decided at one instant, where the order of requests matters only if they use the same
//! counter.

mod records;

#[cfg(test)]
mod tests;

use std::hash::BuildHasher as _;

use engine::StoreError;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use redis::Cmd;

use self::records::Records;
use super::decode::Answer;
use super::encode::Encoded;
use super::runs::GroupReply;
use super::{SCRIPT, ScriptRef, TEXT, When};

/// The order of the requests of one call.
#[derive(Debug, Default)]
pub(crate) struct CallOrder {
    /// `None` if each request is sent for itself, in the order of arrival.
    groups: Option<RequestGroups>,
    /// Whether a key is sent more than once.
    keys_repeat: bool,
}

#[derive(Debug)]
struct RequestGroups {
    /// In the order in which they are sent.
    groups: Vec<RequestGroup>,
    /// The index of the group of each request.
    group_of: Vec<usize>,
}

/// Requests with an equal charge, or any one request.
#[derive(Clone, Copy, Debug)]
struct RequestGroup {
    /// The index of its first request.
    first: usize,
    size: u16,
}

impl CallOrder {
    /// The order for these requests, which are given in the order of arrival.
    pub(crate) fn new<'a>(requests: impl ExactSizeIterator<Item = &'a Encoded> + Clone) -> Self {
        let keys: usize = requests.clone().map(Encoded::key_count).sum();
        if keys < 2 {
            return Self::default();
        }
        let mut counters = UsedCounters::with_capacity(keys);
        let mut groups: Option<RequestGroups> = None;
        for (index, request) in requests.clone().enumerate() {
            let next_group = groups.as_ref().map_or(index, |groups| groups.groups.len());
            if let Some(group) = counters.join_or_open(request, next_group) {
                groups.get_or_insert_with(|| RequestGroups::of_one_request_each(index)).join(group);
            } else if let Some(groups) = &mut groups {
                groups.open(index);
            }
        }
        if !counters.keys_repeat && (groups.is_some() || are_mixed(requests.clone())) {
            let requests: Vec<&Encoded> = requests.collect();
            groups
                .get_or_insert_with(|| RequestGroups::of_one_request_each(requests.len()))
                .gather_alike(&requests);
        }
        Self { groups, keys_repeat: counters.keys_repeat }
    }

    /// How many groups are sent; `None` if each request is sent for itself.
    pub(crate) fn groups(&self) -> Option<usize> {
        self.groups.as_ref().map(|groups| groups.groups.len())
    }

    /// The command that decides the requests, the same as those given to [`CallOrder::new`].
    pub(crate) fn command<'a>(
        &self,
        requests: impl Iterator<Item = &'a Encoded> + Clone,
        when: When,
        script: ScriptRef,
    ) -> Cmd {
        let Some(RequestGroups { groups, .. }) = &self.groups else {
            return command(requests.map(|request| (request, 1)), self.keys_repeat, when, script);
        };
        let requests: Vec<&Encoded> = requests.collect();
        let groups = groups.iter().map(|group| (requests[group.first], group.size));
        command(groups, self.keys_repeat, when, script)
    }

    /// Splits the reply to the command into the answers to the requests, in the order of arrival.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the reply has another length.
    pub(crate) fn split_reply<'a>(
        &self,
        requests: impl Iterator<Item = &'a Encoded> + Clone,
        numbers: &[i64],
    ) -> Result<Vec<Answer>, StoreError> {
        let Some(groups) = &self.groups else {
            return split_in_order(requests, numbers);
        };
        groups.split(&requests.collect::<Vec<_>>(), numbers).ok_or_else(|| {
            let failure = format!("{} numbers that are no reply to these requests", numbers.len());
            StoreError::Malformed(failure)
        })
    }
}

impl RequestGroups {
    fn of_one_request_each(requests: usize) -> Self {
        let groups = (0..requests).map(|first| RequestGroup { first, size: 1 }).collect();
        Self { groups, group_of: (0..requests).collect() }
    }

    /// Adds the next request, to this group.
    fn join(&mut self, group: usize) {
        self.groups[group].size += 1;
        self.group_of.push(group);
    }

    /// Adds the next request, which has this index, as a group.
    fn open(&mut self, request: usize) {
        self.group_of.push(self.groups.len());
        self.groups.push(RequestGroup { first: request, size: 1 });
    }

    /// Puts the groups of one request that differ in their keys only next to each other, where the first of them was.
    fn gather_alike(&mut self, requests: &[&Encoded]) {
        let mut place_of = HashMap::with_capacity(self.groups.len());
        let places = self.groups.iter().enumerate().map(|(index, group)| {
            let request = requests[group.first];
            let is_gathered = group.size == 1 && request.may_be_alike();
            if is_gathered { *place_of.entry(request.record()).or_insert(index) } else { index }
        });
        let places: Vec<usize> = places.collect();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&group| places[group]);
        let mut moved_to = vec![0; order.len()];
        for (index, &group) in order.iter().enumerate() {
            moved_to[group] = index;
        }
        self.groups = order.iter().map(|&group| self.groups[group]).collect();
        for group in &mut self.group_of {
            *group = moved_to[*group];
        }
    }

    /// The answers in the order of arrival; `None` if the script cannot have returned these numbers.
    fn split(&self, requests: &[&Encoded], numbers: &[i64]) -> Option<Vec<Answer>> {
        let (now_us, mut rest) = split_time(numbers)?;
        let mut replies = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            replies.push(GroupReply::split_off(&mut rest, requests[group.first], group.size)?);
        }
        let answers =
            self.group_of.iter().map(|&group| Answer { now_us, numbers: replies[group].next_answer() });
        rest.is_empty().then(|| answers.collect())
    }
}

/// Whether requests with the same record may be apart.
fn are_mixed<'a>(requests: impl Iterator<Item = &'a Encoded> + Clone) -> bool {
    let mut records = requests.clone().map(Encoded::record);
    let first = records.next();
    records.any(|record| Some(record) != first)
        && requests.filter(|request| request.may_be_alike()).nth(1).is_some()
}

/// The counters that the requests so far use.
struct UsedCounters<'a> {
    by_key: HashTable<UsedCounter<'a>>,
    hasher: DefaultHashBuilder,
    /// Whether a key is sent more than once.
    keys_repeat: bool,
}

struct UsedCounter<'a> {
    key: &'a str,
    /// The group that used the counter last, if further requests may join it.
    open: Option<OpenGroup<'a>>,
}

/// A group that requests equal to its first one may join, while no other request uses their counter.
struct OpenGroup<'a> {
    first: &'a Encoded,
    /// Its index in [`RequestGroups::groups`].
    index: usize,
    size: u16,
}

impl<'a> UsedCounters<'a> {
    fn with_capacity(keys: usize) -> Self {
        let by_key = HashTable::with_capacity(keys);
        Self { by_key, hasher: DefaultHashBuilder::default(), keys_repeat: false }
    }

    /// Returns the index of the group that the request joins. If there is none, the request's own group has the index
    /// `next`.
    fn join_or_open(&mut self, request: &'a Encoded, next: usize) -> Option<usize> {
        let may_repeat = request.step_of().is_some();
        for key in request.keys() {
            let open = may_repeat.then_some(OpenGroup { first: request, index: next, size: 1 });
            let hash = self.hasher.hash_one(key);
            match self.by_key.entry(hash, |used| used.key == key, |used| self.hasher.hash_one(used.key)) {
                Entry::Vacant(vacant) => {
                    vacant.insert(UsedCounter { key, open });
                }
                Entry::Occupied(mut used) => {
                    if let Some(group) = &mut used.get_mut().open
                        && group.accepts(request)
                    {
                        group.size += 1;
                        return Some(group.index);
                    }
                    used.get_mut().open = open;
                    self.keys_repeat = true;
                }
            }
        }
        None
    }
}

impl OpenGroup<'_> {
    /// Whether a request with the same key is equal, and there is room for it.
    fn accepts(&self, request: &Encoded) -> bool {
        self.first.record() == request.record() && self.size < u16::MAX
    }
}

/// The command that decides these requests in this order, each as often as its number says. `keys_repeat`: whether a
/// key is sent more than once.
fn command<'a>(
    requests: impl Iterator<Item = (&'a Encoded, u16)> + Clone,
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
    command.arg(Records::new(requests, keys_repeat, when, bytes).bytes());
    command
}

/// Splits the reply to requests that were sent one by one.
fn split_in_order<'a>(
    requests: impl Iterator<Item = &'a Encoded> + Clone,
    numbers: &[i64],
) -> Result<Vec<Answer>, StoreError> {
    let expected: usize = requests.clone().map(Encoded::reply_width).sum();
    let Some((now_us, mut rest)) = split_time(numbers).filter(|(_, rest)| rest.len() == expected) else {
        let failure = format!("{} numbers instead of {}", numbers.len(), expected + 1);
        return Err(StoreError::Malformed(failure));
    };
    let answers = requests.map(|request| {
        let (numbers, after) = rest.split_at(request.reply_width());
        rest = after;
        Answer { now_us, numbers: numbers.into() }
    });
    Ok(answers.collect())
}

/// The time of the decision in microseconds since the epoch, and the numbers after it.
fn split_time(numbers: &[i64]) -> Option<(u64, &[i64])> {
    let (&now, rest) = numbers.split_first()?;
    // A server's clock may be before 1970.
    Some((now.max(0).unsigned_abs(), rest))
}
