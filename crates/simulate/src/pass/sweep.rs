//! Tries other limits in units per period: each is decided by the limit's own kernel, regardless of the other limits.

use engine::{Charge, Charges, Limit, Role};
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::counters::MAX_COUNTERS;
use super::options::RuleSets;
use super::planned::{Counter, Observation, RequestPlan};
use super::tried::{OverAt, SweptLimit};
use super::tried_counters::TriedCounters;

/// With fewer counters than this, unused keys stay.
const FEW_COUNTERS: usize = 100_000;

/// The counters of all tried limits.
#[derive(Debug)]
pub(super) struct Sweep {
    /// By index of the candidate limit.
    limits: Vec<SweptLimit>,
    /// By the hash of the key in its limit's row.
    keys: HashMap<u64, SweptKey>,
    /// Sum over all keys, in counters.
    weight: usize,
    most: usize,
    /// Above this weight, unused keys are removed.
    enough: usize,
    /// Each eviction removes the keys whose hash has another one of these bits.
    evicted_bit: u32,
    evictions: u64,
}

#[derive(Debug)]
struct SweptKey {
    limit: u32,
    counters: TriedCounters,
}

impl Sweep {
    /// `in_force`: the current limit with the label of a candidate, which is tried, too.
    pub fn new<'r>(rules: &'r RuleSets, in_force: impl Fn(usize) -> Option<&'r Limit>) -> Self {
        let limits = rules.judged.limits().iter().enumerate();
        Self::of_limits(limits.map(|(index, limit)| SweptLimit::new(limit, in_force(index))), MAX_COUNTERS)
    }

    /// With at most this many counters.
    fn of_limits(limits: impl Iterator<Item = SweptLimit>, most: usize) -> Self {
        Self {
            limits: limits.collect(),
            keys: HashMap::new(),
            weight: 0,
            most,
            enough: FEW_COUNTERS.min(most),
            evicted_bit: 0,
            evictions: 0,
        }
    }

    /// Decides and counts the charges of a request to one counter by every tried limit, regardless of the other limits.
    /// `hash`: of the counter key in its limit's row. Times never step back.
    pub fn count(&mut self, hash: u64, plan: &RequestPlan, counter: &Counter, seen: Observation) -> OverAt {
        // Overrides are not tried with other limits.
        let limit = self.limits.get_mut(counter.limit).filter(|limit| !limit.tried.is_empty());
        let Some(limit) = limit else { return 0 };
        let index = u32::try_from(counter.limit).unwrap_or(u32::MAX);
        let new = || SweptKey { limit: index, counters: TriedCounters::default() };
        let counters = &mut self.keys.entry(hash).or_insert_with(new).counters;
        let weight = counters.weight();
        let (key, charge) = plan.charges.get(counter.charge);
        let is_alone = plan.charges.keys().filter(|other| *other == key).count() == 1;
        let over_at = if is_alone {
            counters.decide(&limit.tried, charge, seen.t_us)
        } else {
            counters.decide_all(&limit.tried, &charges_on(plan, key), seen.t_us)
        };
        limit.count(over_at, seen.is_good);
        self.weight = self.weight + counters.weight() - weight;
        if self.weight > self.enough {
            self.make_room(seen.t_us);
        }
        over_at
    }

    /// Removes unused keys, then evicts every second key (the same ones in every run) until a quarter of the table is
    /// free.
    fn make_room(&mut self, now_us: u64) {
        let (limits, weight) = (&self.limits, &mut self.weight);
        self.keys.retain(|_, key| {
            let tried = limits.get(key.limit as usize).map_or(&[][..], |limit| &limit.tried);
            let is_kept = !key.counters.are_unused(tried, now_us);
            *weight -= if is_kept { 0 } else { key.counters.weight() };
            is_kept
        });
        while self.weight > self.most / 4 * 3 && !self.keys.is_empty() {
            let (bit, weight) = (self.evicted_bit, &mut self.weight);
            let evicted = self.keys.extract_if(|hash, _| hash >> bit & 1 == 1);
            let evicted: usize = evicted.map(|(_, key)| key.counters.weight()).sum();
            *weight -= evicted;
            self.evictions += evicted as u64;
            self.evicted_bit = (self.evicted_bit + 1) % u64::BITS;
        }
        self.enough = (2 * self.weight).max(FEW_COUNTERS).min(self.most);
    }

    /// The tried limits for a candidate limit.
    pub fn limit(&self, index: usize) -> Option<&SweptLimit> {
        self.limits.get(index)
    }

    /// Counters evicted because there were too many: after that, limits admit too much.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }
}

/// The charges of a request to one counter, each able to deny. No other limit denies the request.
fn charges_on(plan: &RequestPlan, key: &str) -> SmallVec<[Charge; 2]> {
    let mut charges = Charges::default();
    for (_, charge) in plan.charges.iter().filter(|(other, _)| *other == key) {
        charges.push(Charge { role: Role::Enforce, ..charge.clone() }, |_| ());
    }
    charges.values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use engine::{
        Algorithm, Caller, Charging, Defaults, Descriptor, DomainSpec, Entry, LimitSpec, NodeSpec, Period,
        Request, RuleSet, RuleSpec, Unit, ValueHashing,
    };
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::counters::{Counters, new_counters};
    use super::super::key_table::key_hash;
    use super::super::options::Sample;
    use super::super::planned::{PlannedRequest, Planner};
    use super::*;
    use map::MappedLine;

    /// Reference: every tried limit decides every request, on its own counter in a store.
    struct Exhaustive {
        limits: Vec<SweptLimit>,
        store: Counters,
    }

    impl Exhaustive {
        fn count(&mut self, plan: &RequestPlan, counter: &Counter, seen: Observation) -> OverAt {
            let limit = &mut self.limits[counter.limit];
            let (key, _) = plan.charges.get(counter.charge);
            let mut over_at = 0;
            for (place, tried) in limit.tried.iter().enumerate() {
                let mut charges = Charges::default();
                for (_, charge) in plan.charges.iter().filter(|(other, _)| *other == key) {
                    let charge = Charge { kernel: tried.kernel, role: Role::Enforce, ..charge.clone() };
                    charges.push(charge, |text| write!(text, "{key}@{}", tried.units).expect("room"));
                }
                let outcomes = self.store.decide_at(&charges, seen.t_us);
                over_at |= OverAt::from(outcomes.is_over(charges.len() - 1)) << place;
            }
            limit.count(over_at, seen.is_good);
            over_at
        }
    }

    fn any_limit() -> impl Strategy<Value = Limit> {
        let simulated = Algorithm::ALL.iter().filter(|algorithm| **algorithm != Algorithm::Concurrency);
        let algorithm = proptest::sample::select(simulated.copied().collect::<Vec<_>>());
        let rest = (1..30_u64, proptest::option::of(1..20_u32), any::<bool>(), any::<bool>());
        (algorithm, rest).prop_map(|(algorithm, (units, burst, is_postpaid, is_interval))| {
            let spec = LimitSpec {
                burst: burst.filter(|_| algorithm.has_burst()),
                charging: if is_postpaid { Charging::Postpaid } else { Charging::Prepaid },
                refill: if is_interval { engine::Refill::Interval } else { engine::Refill::Continuous },
                ..LimitSpec::new(algorithm, units, Period::one(Unit::Second))
            };
            Limit::new(spec).expect("a valid limit")
        })
    }

    /// A rule with these limits for each value of `user`.
    fn rules(limits: Vec<Limit>, shadow: bool) -> RuleSets {
        let rule = RuleSpec { limits, shadow, ..RuleSpec::default() };
        let node = NodeSpec { key: "user".to_owned(), rule: Some(rule), ..NodeSpec::default() };
        let domain = DomainSpec { domain: "d".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
        let judged = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE);
        RuleSets { judged: judged.expect("valid rules"), in_force: None, variants: Vec::new() }
    }

    /// The user, the hits, and whether they are returned.
    type Asked = (u8, u64, bool);

    fn request(t_us: u64, asked: &[Asked]) -> MappedLine {
        let descriptor = |(user, hits, is_refund): &Asked| Descriptor {
            entries: vec![Entry { key: "user".to_owned(), value: user.to_string() }],
            hits: Some(*hits),
            is_refund: *is_refund,
            ..Descriptor::default()
        };
        let descriptors = asked.iter().map(descriptor).collect();
        let request =
            Request { domain: "d".to_owned(), hits_addend: 1, descriptors, caller: Caller::default() };
        let mut line = MappedLine::default();
        (line.t_us, line.request, line.is_good) = (t_us, request, asked[0].0 == 0);
        line
    }

    fn planned(rules: &RuleSets, line: &MappedLine) -> PlannedRequest {
        let mut planned = PlannedRequest::default();
        Planner::new(rules, Sample::ALL).plan(line, &mut planned).expect("a plan");
        planned
    }

    /// Mostly one unit of one user; rarely several descriptors, larger costs, peeks and refunds.
    fn any_asked() -> impl Strategy<Value = Vec<Asked>> {
        let usual = (0..3_u8).prop_map(|user| vec![(user, 1, false)]);
        let hits = prop_oneof![4 => 1..4_u64, 1 => Just(0), 1 => 4..40_u64];
        let other = vec((0..3_u8, hits, proptest::bool::weighted(0.2)), 1..4);
        prop_oneof![3 => usual, 1 => other]
    }

    /// Pauses of microseconds, of fractions of a period, and of several periods.
    fn any_pause_us() -> impl Strategy<Value = u64> {
        prop_oneof![1 => 0..3_u64, 6 => 0..200_000_u64, 2 => 0..1_500_000_u64, 1 => 0..70_000_000_u64]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

        #[test]
        fn the_counts_are_those_of_deciding_every_request_by_every_number(
            limits in vec(any_limit(), 1..4),
            shadow: bool,
            requests in vec((any_pause_us(), any_asked()), 1..150),
        ) {
            // Rule files with two equal limits in a rule are refused.
            let mut kinds = BTreeSet::new();
            let limits = limits.into_iter().filter(|limit| kinds.insert(format!("{:?}", limit.quantity))).collect();
            let rules = rules(limits, shadow);
            let mut fast = Sweep::new(&rules, |_| None);
            let limits = rules.judged.limits().iter().map(|limit| SweptLimit::new(limit, None)).collect();
            let mut exhaustive = Exhaustive { limits, store: new_counters() };
            let mut t_us = 1_700_000_040_000_000;
            for (step, (pause_us, asked)) in requests.iter().enumerate() {
                t_us += pause_us;
                let planned = planned(&rules, &request(t_us, asked));
                let plan = &planned.plans[0];
                for counter in &plan.counters {
                    let hash = key_hash(counter.limit, plan.key(counter));
                    let found = fast.count(hash, plan, counter, planned.seen);
                    let expected = exhaustive.count(plan, counter, planned.seen);
                    prop_assert_eq!(found, expected, "request {} at {}: {:?}", step, t_us, asked);
                }
            }
            let counts = |limit: &SweptLimit| -> Vec<(u64, u64, u64)> {
                limit.tried.iter().map(|tried| (tried.units, tried.over, tried.good_over)).collect()
            };
            let found: Vec<_> = fast.limits.iter().map(counts).collect();
            prop_assert_eq!(found, exhaustive.limits.iter().map(counts).collect::<Vec<_>>());
            let weight: usize = fast.keys.values().map(|key| key.counters.weight()).sum();
            prop_assert_eq!(fast.weight, weight);
        }
    }

    /// Counts a request of each of these users, and returns the sweep.
    fn swept(users: u64, pause_us: u64, most: usize) -> Sweep {
        let spec = LimitSpec::new(Algorithm::Gcra, 8, Period::one(Unit::Second));
        let rules = rules(vec![Limit::new(spec).expect("a valid limit")], false);
        let limits = rules.judged.limits().iter().map(|limit| SweptLimit::new(limit, None));
        let mut sweep = Sweep::of_limits(limits, most);
        let planned = planned(&rules, &request(0, &[(0, 1, false)]));
        let plan = &planned.plans[0];
        for user in 0..users {
            let seen = Observation { t_us: 1_000_000 + user * pause_us, ..planned.seen };
            let hash = key_hash(0, &user.to_string());
            assert_eq!(sweep.count(hash, plan, &plan.counters[0], seen), 0);
        }
        sweep
    }

    #[test]
    fn unused_keys_are_removed_and_used_ones_only_if_there_are_too_many() {
        let sweep = swept(300_000, 1_000, 50_000);
        assert!(
            sweep.keys.len() < 50_000 && sweep.evictions == 0,
            "{} {}",
            sweep.keys.len(),
            sweep.evictions
        );
        let sweep = swept(60_000, 0, 50_000);
        assert!(sweep.weight <= 50_000 && sweep.evictions > 10_000, "{} {}", sweep.weight, sweep.evictions);
        let again = swept(60_000, 0, 50_000);
        assert_eq!((again.weight, again.evictions), (sweep.weight, sweep.evictions), "the same in every run");
    }
}
