//! Turns the values of a line into a request.

use std::borrow::Cow;

use engine::{Caller, Descriptor, Entry, Request};

use super::sent::SentDescriptors;
use super::{CostRule, Map};
use crate::entry::{DescriptorRule, one_host};
use crate::expression::{Expression, FieldIndex, number};
use crate::path::{one_spelling, path_of};
use crate::values::{Selected, ValueFault};

/// A line that became a request. The next line may reuse its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedLine {
    pub t_us: u64,
    pub request: Request,
    /// `good` of the map; `false` without it.
    pub is_good: bool,
    /// `was_limited` of the map; `false` without it.
    pub was_limited: bool,
    /// The map's descriptors that the request has.
    pub sent: SentDescriptors,
    /// Unused descriptors, kept for their memory.
    spare: Vec<Descriptor>,
}

impl Default for MappedLine {
    fn default() -> Self {
        let request = Request {
            domain: String::new(),
            hits_addend: 1,
            descriptors: Vec::new(),
            caller: Caller::default(),
        };
        let sent = SentDescriptors::default();
        Self { t_us: 0, request, is_good: false, was_limited: false, sent, spare: Vec::new() }
    }
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    Request,
    /// `keep` does not hold.
    NotKept,
    /// Each descriptor has an entry without a value.
    NoDescriptor,
}

pub(crate) struct Spelled<'l> {
    pub values: Selected<'l>,
    /// With the path as the client wrote it, if that is not the normalized spelling.
    as_written: Option<Selected<'l>>,
}

impl Spelled<'_> {
    /// `true` if `condition` may hold when each comparison uses either spelling. A client that respells an exempt path
    /// then gets a limit, and never loses one. If the whole condition used one spelling, a path could miss a required
    /// part in one spelling and hit an excluded one in the other.
    pub fn meets(&self, condition: &Expression) -> bool {
        match &self.as_written {
            None => condition.holds(&self.values),
            Some(as_written) => condition.may_be(true, &[&self.values, as_written]),
        }
    }
}

impl Map {
    /// Turns the values of a line into a request; `time` parses its time. Unless the result is [`Became::Request`],
    /// `mapped` is meaningless.
    ///
    /// # Errors
    /// [`ValueFault`] of the path, the time or the cost.
    pub fn read_values(
        &self,
        values: Selected<'_>,
        time: impl Fn(&Selected<'_>) -> Result<u64, ValueFault>,
        mapped: &mut MappedLine,
    ) -> Result<Became, ValueFault> {
        let spelled = self.spelled(values)?;
        let values = &spelled.values;
        if self.keep.as_ref().is_some_and(|keep| !spelled.meets(keep)) {
            return Ok(Became::NotKept);
        }
        mapped.t_us = time(values)?;
        let hits = self.cost.units(values)?;
        self.write_descriptors(&spelled, hits, mapped);
        if mapped.request.descriptors.is_empty() {
            return Ok(Became::NoDescriptor);
        }
        if mapped.request.domain != self.domain {
            mapped.request.domain.clone_from(&self.domain);
        }
        let holds = |condition: &Option<Expression>| condition.as_ref().is_some_and(|it| it.holds(values));
        mapped.is_good = holds(&self.good);
        mapped.was_limited = holds(&self.was_limited);
        Ok(Became::Request)
    }

    /// The fields that the map uses, with their values in a line.
    pub fn used_fields(&self, values: Selected<'_>) -> Vec<(String, Option<String>)> {
        let values = self.spelled(values.clone()).map_or(values, |spelled| spelled.values);
        let value = |index: usize| values.get(index).cloned().flatten().map(Cow::into_owned);
        self.fields.names().enumerate().map(|(index, name)| (name.to_owned(), value(index))).collect()
    }

    /// Returns the values with hosts and the path of `normalize` normalized.
    ///
    /// # Errors
    /// [`ValueFault::DotSegment`].
    pub(crate) fn spelled<'l>(&self, mut values: Selected<'l>) -> Result<Spelled<'l>, ValueFault> {
        for FieldIndex(at) in &self.hosts {
            if let Some(host) = values.get_mut(*at) {
                *host = host.take().and_then(one_host);
            }
        }
        let mut as_written = None;
        if let Some(FieldIndex(at)) = self.normalized
            && let Some(Some(value)) = values.get(at)
            && let Some(path) = path_of(value)
        {
            let spelling = one_spelling(path).ok_or(ValueFault::DotSegment)?.into_owned();
            if spelling != path {
                let mut written = values.clone();
                written[at] = Some(Cow::Owned(path.to_owned()));
                as_written = Some(written);
            }
            values[at] = Some(Cow::Owned(spelling));
        }
        Ok(Spelled { values, as_written })
    }

    /// Replaces the descriptors by those of a line, each with this many hits, without those that lack a value.
    pub(crate) fn write_descriptors(&self, line: &Spelled<'_>, hits: Option<u64>, mapped: &mut MappedLine) {
        // In reverse, so that each descriptor is reused for the same one of the next line.
        mapped.spare.extend(mapped.request.descriptors.drain(..).rev());
        mapped.sent = SentDescriptors::default();
        for (position, DescriptorRule { when, entries: rules }) in self.descriptors.iter().enumerate() {
            if when.as_ref().is_some_and(|when| !line.meets(when)) {
                continue;
            }
            let mut descriptor = mapped.spare.pop().unwrap_or_default();
            descriptor
                .entries
                .resize_with(rules.len(), || Entry { key: String::new(), value: String::new() });
            let mut written = 0;
            for (rule, entry) in rules.iter().zip(&mut descriptor.entries) {
                let Some(value) = rule.value(&line.values) else { break };
                entry.key.clone_from(&rule.key);
                entry.value.clear();
                entry.value.push_str(&value);
                written += 1;
            }
            descriptor.hits = hits;
            descriptor.is_whole_cost = true;
            if written == rules.len() {
                mapped.sent.add(position);
                mapped.request.descriptors.push(descriptor);
            } else {
                mapped.spare.push(descriptor);
            }
        }
    }
}

impl CostRule {
    /// The hits of each descriptor; `None` for one hit.
    pub(crate) fn units(self, line: &Selected<'_>) -> Result<Option<u64>, ValueFault> {
        match self {
            Self::Constant(1) => Ok(None),
            Self::Constant(units) => Ok(Some(units)),
            Self::Field { field, unit } => match line[field.0].as_deref() {
                None => Ok(None),
                Some(text) => {
                    let amount = number(text);
                    let (whole, has_more) =
                        amount.ok_or_else(|| ValueFault::Cost(text.chars().take(60).collect()))?;
                    let amount = whole.saturating_add(has_more.into());
                    // 0 would be a peek.
                    Ok(Some(amount.div_ceil(unit).max(1)))
                }
            },
        }
    }
}
