//! From the values of a line to a request.

use std::borrow::Cow;

use engine::{Caller, Descriptor, Entry, Request};

use super::sent::SentDescriptors;
use super::{CostRule, Map};
use crate::entry::DescriptorRule;
use crate::expression::{Expression, FieldIndex, whole_number};
use crate::path::{one_spelling, path_of};
use crate::values::{Selected, ValueFault};

/// A line that became a request. The next line may take its place and use its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedLine {
    pub t_us: u64,
    pub request: Request,
    /// `good` of the map; false without it.
    pub is_good: bool,
    /// `was_limited` of the map; false without it.
    pub was_limited: bool,
    /// The descriptors of the map that the request has.
    pub sent: SentDescriptors,
    /// Descriptors that are not part of the request; their memory is used for further ones.
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

/// What the values of a line became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    Request,
    /// `keep` does not hold.
    NotKept,
    /// Each descriptor has an entry without a value.
    NoDescriptor,
}

/// The values of a line.
pub(crate) struct Spelled<'l> {
    pub values: Selected<'l>,
    /// With the path as the client wrote it, if that is not its one spelling.
    as_written: Option<Selected<'l>>,
}

impl Spelled<'_> {
    /// Whether `condition` may hold if each comparison sees either spelling: a client that spells what is exempt in
    /// another way gets a limit, and never loses one. With one spelling for the whole condition, a path could miss
    /// what a condition asks for in the one, and what it rules out in the other.
    pub fn meets(&self, condition: &Expression) -> bool {
        match &self.as_written {
            None => condition.holds(&self.values),
            Some(as_written) => condition.may_be(true, &[&self.values, as_written]),
        }
    }
}

impl Map {
    /// Makes a request of the values of a line. `time` reads its time. Unless it became a request, `mapped` has nothing
    /// of meaning.
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
    #[must_use]
    pub fn used_fields(&self, values: Selected<'_>) -> Vec<(String, Option<String>)> {
        let values = self.spelled(values.clone()).map_or(values, |spelled| spelled.values);
        let value = |index: usize| values.get(index).cloned().flatten().map(Cow::into_owned);
        self.fields.names().enumerate().map(|(index, name)| (name.to_owned(), value(index))).collect()
    }

    /// The values with the path of `normalize` in one spelling.
    ///
    /// # Errors
    /// [`ValueFault::DotSegment`].
    pub(crate) fn spelled<'l>(&self, mut values: Selected<'l>) -> Result<Spelled<'l>, ValueFault> {
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
        // In reverse, so that each descriptor is taken for the same one of the next line.
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
    /// The hits of each descriptor; `None` for one.
    pub(crate) fn units(self, line: &Selected<'_>) -> Result<Option<u64>, ValueFault> {
        match self {
            Self::Constant(1) => Ok(None),
            Self::Constant(units) => Ok(Some(units)),
            Self::Field { field, unit } => match line[field.0].as_deref() {
                None => Ok(None),
                Some(text) => {
                    let amount = whole_number(text);
                    let amount = amount.ok_or_else(|| ValueFault::Cost(text.chars().take(60).collect()))?;
                    // 0 would only ask.
                    Ok(Some(amount.div_ceil(unit).max(1)))
                }
            },
        }
    }
}
