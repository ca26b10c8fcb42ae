//! The limits that an answer announces: in a header of the request that Envoy forwards, and in metadata.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use engine::{Announced, Decision, LimitResult, Metadata, Rule};

/// Announced limits, each name once, in the request's order.
#[derive(Debug, Default)]
pub(super) struct Announcements(Vec<(String, Announced)>);

impl Announcements {
    pub(super) fn from_decision(decision: &Decision) -> Self {
        let mut announcements = Self::default();
        if decision.has_announced_limits() {
            for result in decision.limit_results() {
                if let Some(announced) = result.announced() {
                    announcements.add(distinct_name(&result), announced);
                }
            }
        }
        announcements
    }

    /// Adds a limit. Limits of one name are announced together: as over if any of them is over.
    fn add(&mut self, name: String, announced: Announced) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = announced.max(*known),
            None => self.0.push((name, announced)),
        }
    }

    /// Returns the header's value, such as `soft;over, hard;near`: a list of structured fields (RFC 9651), one token
    /// per limit, with the announcement as its parameter. `None` if nothing is announced.
    pub(super) fn header_value(&self) -> Option<String> {
        let item = |(limit, announced): &(String, Announced)| format!("{};{announced}", token(limit));
        let items: Vec<_> = self.0.iter().map(item).collect();
        (!items.is_empty()).then(|| items.join(", "))
    }

    /// Returns each limit's name with its announcement; `None` if nothing is announced.
    pub(super) fn metadata(&self) -> Option<Metadata> {
        let field = |(limit, announced): &(String, Announced)| {
            (limit.clone(), Metadata::Text(announced.into_str().to_owned()))
        };
        let fields: BTreeMap<_, _> = self.0.iter().map(field).collect();
        (!fields.is_empty()).then_some(Metadata::Map(fields))
    }
}

/// Returns the limit's label, followed by its period if the limit is unnamed and its rule has several limits.
pub(super) fn distinct_name(result: &LimitResult<'_>) -> String {
    let several = |rule: &Rule| rule.limits.len() > 1;
    let mut name = result.limit.label.to_string();
    if result.limit.spec.name.is_none() && result.rule.is_some_and(several) {
        let period = result.limit.spec.period;
        let _ = write!(name, ".{}{}", period.multiplier(), period.unit().into_str());
    }
    name
}

/// Replaces every character that a token cannot contain with `_`.
fn token(text: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
    text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_each_limit_once_and_cannot_be_split() {
        let mut announcements = Announcements::default();
        assert_eq!(announcements.header_value(), None);
        for (name, announced) in [
            ("per day", Announced::Near),
            ("d.user_a\r\nx: y, b;over", Announced::Over),
            ("per day", Announced::Over),
            ("hard", Announced::Near),
            ("per day", Announced::Near),
        ] {
            announcements.add(name.to_owned(), announced);
        }
        let value = announcements.header_value();
        assert_eq!(value.as_deref(), Some("per_day;over, d.user_a__x:_y__b_over;over, hard;near"));
    }
}
