//! What a request says about pauses: offences, which are denials by limits with `penalty`, and the pauses that callers
//! report. Only the service that decides the request acts on them.

use std::sync::Arc;

use crate::limit::Limit;
use crate::limit::key::Entry;
use crate::limit::pauses::{PauseScope, PauseTarget, Penalty};
use crate::request::Descriptor;
use crate::request::pause::Pause;
use crate::rules::rule_set::Rule;
use crate::rules::secret::HiddenValues;

/// Something that may pause a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseEvent {
    pub domain: Arc<str>,
    /// The label of the limit.
    pub rule: Arc<str>,
    pub cause: PauseCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseCause {
    /// The limit denied a request.
    Offence {
        value: PausedValue,
        penalty: Arc<Penalty>,
        /// Key of the counter whose limit denied.
        counter: Box<str>,
    },
    /// A caller reports a pause until this time, microseconds since the epoch.
    Reported { value: PausedValue, until_us: u64 },
    /// The report is not a pause, or the pause is over.
    Unreadable,
    /// The rule lacks a limit with `feedback`, or is in shadow mode.
    Refused,
}

/// The value of an entry, and the rules that are to block it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PausedValue {
    pub key: Arc<str>,
    /// The hash of a secret value.
    pub value: Arc<str>,
    /// The path of the rule in its domain; `None`: the whole domain.
    pub path: Option<Arc<str>>,
}

/// A reported pause to plan.
pub(super) struct ReportedPause<'r> {
    pub(super) index: usize,
    pub(super) descriptor: &'r Descriptor,
    pub(super) pause: Option<Pause>,
    pub(super) now_us: u64,
}

/// The value of the target's entry in a descriptor of the request.
pub(crate) fn paused_value(
    hidden: &HiddenValues,
    (index, entries): (usize, &[Entry]),
    rule: &Rule,
    target: &PauseTarget,
) -> Option<PausedValue> {
    // The deepest entry, if the key occurs several times.
    let at = entries.iter().rposition(|entry| *entry.key == *target.of)?;
    let value = hidden.get(index, at).unwrap_or(&entries[at].value);
    let path = match target.scope {
        PauseScope::Rule => Some(rule.path_in_domain().into()),
        PauseScope::Domain => None,
    };
    Some(PausedValue { key: Arc::clone(&target.of), value: value.into(), path })
}

/// Returns what a report means, with the limit that blocks the value, and for how many microseconds; `None` if the
/// report changes nothing.
pub(super) fn read_report(
    hidden: &HiddenValues,
    rule: &Rule,
    report: &ReportedPause<'_>,
) -> (PauseEvent, Option<(Arc<Limit>, u64)>) {
    let &ReportedPause { index, descriptor, pause, now_us } = report;
    let allowing = rule.limits.iter().filter(|limit| !limit.shadow).find_map(|limit| {
        let feedback = limit.spec.feedback.as_deref()?;
        let value = paused_value(hidden, (index, &descriptor.entries), rule, &feedback.target)?;
        Some((limit, feedback, value))
    });
    let label = allowing.as_ref().map_or(&rule.limits[0].label, |(limit, ..)| &limit.label);
    let mut event =
        PauseEvent { domain: Arc::clone(&rule.domain), rule: Arc::clone(label), cause: PauseCause::Refused };
    let blocked = allowing.and_then(|(limit, feedback, value)| {
        event.cause = PauseCause::Unreadable;
        let length_us = pause?.length_us(now_us, feedback.max_us)?;
        let until_us = now_us.saturating_add(length_us);
        event.cause = PauseCause::Reported { value, until_us };
        Some((Arc::new(limit.as_blocked(Some(until_us))), length_us))
    });
    (event, blocked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Attempt;
    use crate::limit::pauses::Feedback;
    use crate::request::plan::Plan;
    use crate::{
        Algorithm, Applied, Bounds, Code, CounterSnapshot, DecidedBy, Decision, Defaults, DomainSpec,
        Enforcement, FailurePolicy, HashKey, LimitSpec, NodeSpec, Outcome, Outcomes, Period, RawDescriptor,
        RawRequest, Request, RuleSet, RuleSpec, Unit, ValueHashing, Verdict,
    };

    /// Five minutes before 15:00 on 26 November 2026.
    const NOW_US: u64 = 1_795_704_900_000_000;
    const SECOND_US: u64 = 1_000_000;

    fn target(of: &str, scope: PauseScope) -> PauseTarget {
        PauseTarget { of: of.into(), scope }
    }

    fn five_a_minute() -> LimitSpec {
        LimitSpec::new(Algorithm::Gcra, 5, Period::one(Unit::Minute))
    }

    fn with_penalty(target: PauseTarget) -> LimitSpec {
        let (within_us, for_us, max_us) = (60 * SECOND_US, 300 * SECOND_US, 3_600 * SECOND_US);
        let penalty = Penalty { target, after: 3, within_us, for_us, grow: 2, max_us };
        LimitSpec { penalty: Some(Arc::new(penalty)), ..five_a_minute() }
    }

    fn with_feedback(target: PauseTarget) -> LimitSpec {
        let feedback = Feedback { target, max_us: 600 * SECOND_US };
        LimitSpec { feedback: Some(Arc::new(feedback)), ..five_a_minute() }
    }

    fn node(key: &str, spec: LimitSpec, descriptors: Vec<NodeSpec>) -> NodeSpec {
        let limits = vec![Limit::new(spec).expect("a valid limit")];
        let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
        NodeSpec { key: key.to_owned(), rule, descriptors, ..NodeSpec::default() }
    }

    fn in_shadow(node: NodeSpec) -> NodeSpec {
        NodeSpec { rule: node.rule.map(|rule| RuleSpec { shadow: true, ..rule }), ..node }
    }

    fn rules() -> RuleSet {
        let by_address = target("address", PauseScope::Rule);
        let login = node("login", with_penalty(by_address.clone()), vec![]);
        let api = target("api", PauseScope::Domain);
        let descriptors = vec![
            node("address", five_a_minute(), vec![login]),
            in_shadow(node("shadow", with_penalty(target("shadow", PauseScope::Rule)), vec![])),
            NodeSpec {
                secret: true,
                ..node("token", with_penalty(target("token", PauseScope::Rule)), vec![])
            },
            node("api", with_feedback(api), vec![]),
            in_shadow(node("quiet", with_feedback(target("quiet", PauseScope::Rule)), vec![])),
        ];
        let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
        let hashing = ValueHashing { key: Some(HashKey::new(b"k")), all_values: false };
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, hashing).expect("valid rules")
    }

    fn request(descriptors: &[&[(&str, &str)]]) -> Request {
        let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
        let descriptor = |entries: &&[(&str, &str)]| RawDescriptor {
            entries: entries.iter().map(entry).collect(),
            ..RawDescriptor::default()
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        let raw = RawRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 };
        let bounds = Bounds { max_descriptors: 9, max_entries: 9, max_value_bytes: 99 };
        raw.validate(&bounds).expect("a valid request")
    }

    /// Decides with every charge over its limit, by the store or by a failure policy.
    fn denied(request: &Request, by_policy: bool, enforcement: Enforcement) -> Decision {
        let plan = Plan::new(&rules(), request, NOW_US).expect("a plan");
        let over = |charge: &crate::Charge| {
            let attempt = Attempt { now_us: NOW_US, cost: charge.cost };
            let reading = charge.kernel.reading(None, attempt);
            let decided_by = if by_policy {
                DecidedBy::Policy(FailurePolicy::Deny)
            } else {
                DecidedBy::Store(CounterSnapshot { now_us: NOW_US, reading })
            };
            let verdict = Verdict::Over;
            Outcome { verdict, report: charge.kernel.report(&reading, attempt, verdict), decided_by }
        };
        let outcomes: Outcomes = plan.charges.values().map(over).collect();
        Decision::merge(plan, outcomes, enforcement)
    }

    fn shown(value: &PausedValue) -> String {
        format!("{}={} at {}", value.key, value.value, value.path.as_deref().unwrap_or("*"))
    }

    fn offences(descriptors: &[&[(&str, &str)]], by_policy: bool, enforcement: Enforcement) -> Vec<String> {
        let request = request(descriptors);
        let offence = |event: PauseEvent| match event.cause {
            PauseCause::Offence { value, counter, .. } => {
                format!("{} {} of {counter}", event.rule, shown(&value))
            }
            other => format!("{other:?}"),
        };
        denied(&request, by_policy, enforcement).offences(&request).map(offence).collect()
    }

    #[test]
    fn a_denial_by_a_limit_with_a_penalty_is_an_offence() {
        let login: &[_] = &[("address", "1.2.3.4"), ("login", "ann")];
        let stored = |descriptors: &[&[(&str, &str)]]| offences(descriptors, false, Enforcement::Enforce);
        let offence =
            "d.address.login address=1.2.3.4 at address.login of {d|address=1.2.3.4}|login=ann#gc:60000000";
        assert_eq!(stored(&[login]), [offence]);
        assert_eq!(stored(&[login, login]), [offence], "once, whatever it took");
        assert_eq!(stored(&[&[("address", "1.2.3.4")]]), [""; 0], "another limit");
        assert_eq!(stored(&[&[("shadow", "x")]]), [""; 0]);
        assert_eq!(stored(&[&[("shadow", "x")], &[("address", "1.2.3.4")]]), [""; 0]);
        assert_eq!(offences(&[login], true, Enforcement::Enforce), [""; 0], "a failure policy");
        assert_eq!(offences(&[login], false, Enforcement::Shadow), [""; 0]);
        let secret = stored(&[&[("token", "hush")]]).concat();
        assert!(secret.starts_with("d.token token=%k") && !secret.contains("hush"), "{secret}");
    }

    /// The statuses and events of one report.
    fn reported(key: &str, text: &str) -> (Code, String, String) {
        let request = request(&[&[(key, "stripe"), ("ratelimitd_pause", text)]]);
        let decision = denied(&request, false, Enforcement::Enforce);
        assert_eq!(decision.charges().count(), 0, "it takes nothing");
        let status = match decision.statuses().next().expect("a status").applied {
            Applied::Paused(limit, length_us) => {
                assert_eq!(limit.spec.requests_per_unit, 0);
                format!("{}s", length_us / SECOND_US)
            }
            Applied::Nothing => "-".to_owned(),
            other => format!("{other:?}"),
        };
        let event = |event: &PauseEvent| match &event.cause {
            PauseCause::Reported { value, until_us } => {
                format!("{} +{}", shown(value), (until_us - NOW_US) / SECOND_US)
            }
            other => format!("{other:?} by {}", event.rule),
        };
        (decision.overall, status, decision.reported_pauses().iter().map(event).collect())
    }

    #[test]
    fn a_caller_pauses_a_value_where_the_rule_allows_it() {
        for (key, text, status, event) in [
            ("api", "30", "30s", "api=stripe at * +30"),
            ("api", "3600", "600s", "api=stripe at * +600"),
            ("api", "Thu, 26 Nov 2026 15:00:00 GMT", "300s", "api=stripe at * +300"),
            ("api", "Thu, 26 Nov 2026 14:55:00 GMT", "-", "Unreadable by d.api"),
            ("api", "0", "-", "Unreadable by d.api"),
            ("api", "", "-", "Unreadable by d.api"),
            ("address", "30", "-", "Refused by d.address"),
            ("quiet", "30", "-", "Refused by d.quiet"),
            ("unknown", "30", "-", ""),
        ] {
            assert_eq!(reported(key, text), (Code::Ok, status.to_owned(), event.to_owned()), "{key}: {text}");
        }
    }

    #[test]
    fn a_report_changes_nothing_for_the_rest_of_its_request() {
        let take: &[_] = &[("api", "stripe")];
        let report: &[_] = &[("api", "stripe"), ("ratelimitd_pause", "30")];
        let alone = Plan::new(&rules(), &request(&[take]), NOW_US).expect("a plan");
        let both = Plan::new(&rules(), &request(&[report, take]), NOW_US).expect("a plan");
        assert_eq!(both.charges, alone.charges);
        assert_eq!(both.descriptors[1], alone.descriptors[0]);
    }
}
