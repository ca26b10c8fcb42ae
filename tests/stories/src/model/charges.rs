//! What a call charges to which counter: costs on one counter are added up, a settle books a difference, and a limit
//! with `reserve` takes units for a check.

use std::collections::HashSet;

use super::counter::{Algorithm, Kind};
use super::rules::{CounterId, InForce, Met, met};
use super::{Model, Outcome};
use crate::story::{Ask, Call, Limit, Returned};

const MOST: i128 = (1 << 53) - 1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// Negative: given back.
    pub(super) units: i128,
    /// Whether it asks for one unit, and takes nothing.
    pub(super) is_peek: bool,
    /// The grant whose units come back, and the number of the limit that gave it.
    pub(super) grant: Option<(i128, i128)>,
}

impl Cost {
    pub(super) const NOTHING: Self = Self { units: 0, is_peek: false, grant: None };

    fn take(units: i128) -> Self {
        Self { units: units.min(MOST), is_peek: units == 0, grant: None }
    }

    fn refund(units: i128) -> Self {
        Self { units: -units.min(MOST), ..Self::NOTHING }
    }

    pub(super) fn needed(self) -> i128 {
        if self.is_peek { 1 } else { self.units.max(0) }
    }

    pub(super) fn is_refund(self) -> bool {
        self.units <= 0 && !self.is_peek
    }

    fn plus(self, other: Self) -> Self {
        let units = (self.units + other.units).clamp(-MOST, MOST);
        Self { units, is_peek: units == 0 && (self.is_peek || other.is_peek), grant: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Enforce,
    Quota(usize),
    /// A quota descriptor in a call with one that is never over.
    NonBinding,
    Shadow,
    Announced,
    /// The charge after a check of a limit with `reserve`.
    Booked,
    Settle,
}

impl Role {
    pub(super) fn never_denies(self) -> bool {
        matches!(self, Self::Shadow | Self::Announced | Self::Booked | Self::Settle)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Charge {
    pub(super) label: String,
    pub(super) counter: CounterId,
    pub(super) algorithm: Algorithm,
    pub(super) cost: Cost,
    pub(super) role: Role,
    pub(super) is_prepaid: bool,
    pub(super) limit: Limit,
}

impl Charge {
    pub(super) fn has_counter(&self) -> bool {
        self.algorithm.kind != Kind::Zero
    }

    /// Whether it is recorded whatever the others say: it is postpaid, or changes nothing.
    pub(super) fn is_independent(&self) -> bool {
        !self.is_prepaid || self.cost.units == 0 || !self.has_counter()
    }

    pub(super) fn is_recorded(&self, is_over: bool, is_denied: bool) -> bool {
        self.cost.units != 0 && (!self.is_prepaid || !is_over && !is_denied)
    }

    pub(super) fn has_announcement(&self) -> bool {
        self.limit.on_over.as_deref() == Some("announce") || self.limit.near.is_some()
    }

    pub(super) fn capacity(&self) -> i128 {
        capacity(&self.limit)
    }

    /// Answers announce the limit while more than this is used.
    pub(super) fn near_threshold(&self) -> Option<i128> {
        let millionths = format!("{:.0}", self.limit.near? * 1e6).parse::<i128>().ok()?;
        Some(self.capacity() * millionths / 1_000_000)
    }
}

fn numbers(algorithm: &Algorithm) -> (Kind, i128, i128) {
    (algorithm.kind, algorithm.limit, algorithm.most())
}

fn numbered(counter: &str, algorithm: &Algorithm) -> CounterId {
    format!("{counter}+{:?}", numbers(algorithm))
}

fn capacity(limit: &Limit) -> i128 {
    let number = limit.requests_per_unit.unwrap_or(0);
    if number == 0 { 0 } else { limit.burst.map_or(i128::from(number), i128::from) }
}

/// What an admitted call recorded: counter, units, grant and number of the limit.
pub(super) type Receipt = Vec<(CounterId, i128, (i128, i128))>;

#[derive(Default)]
pub(super) struct Planned {
    /// By the clock of the process.
    now_us: i128,
    pub(super) charges: Vec<Charge>,
    pub(super) descriptors: Vec<Described>,
    gives_receipt: bool,
    /// The settles of the call: charge, receipt, units of the real cost.
    settles: Vec<(usize, Returned, i128)>,
}

#[derive(Default)]
pub(super) struct Described {
    pub(super) limits: Vec<Limited>,
    pub(super) unlimited: Option<String>,
}

pub(super) struct Limited {
    pub(super) charge: usize,
    pub(super) label: String,
    pub(super) capacity: i128,
}

impl Model<'_> {
    /// `None` if no descriptor is left, because their receipts are missing.
    pub(super) fn plan(&self, call: &Call) -> Option<Planned> {
        let is_known =
            |ask: &&Ask| !matches!(&ask.receipt, Some(Returned::Of(id)) if !self.receipts.contains_key(id));
        let asks: Vec<&Ask> = call.descriptors.iter().filter(is_known).collect();
        let now_us = (self.now_us + self.skews_us[call.process % 2]).max(0);
        let file = self.rules.iter().find(|file| file.domain == call.domain);
        let of_ask = |ask: &&Ask| file.map_or_else(Met::default, |file| met(file, self.rows, ask, now_us));
        let met: Vec<Met> = asks.iter().map(of_ask).collect();
        let replaced: HashSet<String> = met
            .iter()
            .flat_map(|met| &met.limits)
            .flat_map(|limit| &limit.limit.replaces)
            .map(|replaced| replaced.name.clone())
            .collect();
        let is_left_out = |limit: &InForce| {
            let is_named = limit.limit.name.as_ref().is_some_and(|name| replaced.contains(name));
            is_named && limit.algorithm.is_some() && !limit.is_blocked
        };
        let is_never_over = |(ask, met): (&&Ask, &Met)| {
            let mut counted =
                met.limits.iter().filter(|limit| limit.algorithm.is_some() && !is_left_out(limit)).peekable();
            met.is_quota
                && ask.receipt.is_none()
                && counted.peek().is_some()
                && counted.all(InForce::never_denies)
        };
        let quota_binds = !asks.iter().zip(&met).any(is_never_over);
        let mut planned = Planned { now_us, ..Planned::default() };
        for (index, (ask, met)) in asks.iter().zip(&met).enumerate() {
            let denying = match met.is_quota {
                true if quota_binds => Role::Quota(index),
                true => Role::NonBinding,
                false => Role::Enforce,
            };
            let mut described = Described::default();
            for limit in met.limits.iter().filter(|limit| !is_left_out(limit)) {
                let Some(algorithm) = limit.algorithm.clone() else {
                    described.unlimited = Some(limit.label.clone());
                    continue;
                };
                let hits = ask.hits.unwrap_or(u64::from(call.hits_addend.max(1)));
                let charge = match (&ask.receipt, limit.limit.settle) {
                    (Some(receipt), true) => {
                        self.add_settle(&mut planned, limit, algorithm, (receipt, hits.into()))
                    }
                    (Some(_), false) => continue,
                    (None, _) => planned.add(limit, algorithm, ask, (hits.into(), denying)),
                };
                described.limits.push(Limited {
                    charge,
                    label: limit.label.clone(),
                    capacity: limit.capacity(),
                });
            }
            planned.descriptors.push(described);
        }
        (!asks.is_empty()).then_some(planned)
    }

    /// A settle books the difference between the real cost and the estimate of the receipt.
    fn add_settle(
        &self,
        planned: &mut Planned,
        limit: &InForce,
        algorithm: Algorithm,
        (receipt, actual): (&Returned, i128),
    ) -> usize {
        let items = match receipt {
            Returned::Of(id) => self.receipts.get(id),
            Returned::Text(_) => None,
        };
        // Beside an estimate of another tier the counter of an estimate has the numbers of its limit.
        let numbered = numbered(&limit.counter, &algorithm);
        let is_numbered =
            |items: &&Receipt| items.len() > 1 && items.iter().any(|(counter, ..)| *counter == numbered);
        let counter =
            if items.filter(is_numbered).is_some() { numbered.clone() } else { limit.counter.clone() };
        let item = items.into_iter().flatten().find(|(known, ..)| *known == counter);
        let is_readable = !matches!(receipt, Returned::Text(text) if !text.starts_with("1."));
        let charges = &planned.charges;
        let is_same = |(charge, other, _): &&mut (usize, Returned, i128)| {
            is_readable && other == receipt && charges[*charge].counter == counter
        };
        let same = planned.settles.iter_mut().find(is_same);
        let actual = same.as_ref().map_or(actual, |(_, _, before)| actual.max(*before));
        let cost = match item {
            Some((_, estimated, grant)) if actual < *estimated => {
                Cost { grant: Some(*grant), ..Cost::refund(estimated - actual) }
            }
            Some((_, estimated, _)) => Cost { is_peek: false, ..Cost::take(actual - estimated) },
            None => Cost { is_peek: false, ..Cost::take(actual) },
        };
        if let Some((charge, _, before)) = same {
            *before = actual;
            planned.charges[*charge].cost = cost;
            return *charge;
        }
        planned.settles.push((planned.charges.len(), receipt.clone(), actual));
        planned.charges.push(Charge {
            algorithm,
            cost,
            counter,
            role: Role::Settle,
            is_prepaid: false,
            ..limit.charge()
        });
        planned.charges.len() - 1
    }
}

impl Planned {
    fn add(
        &mut self,
        limit: &InForce,
        algorithm: Algorithm,
        ask: &Ask,
        (hits, denying): (i128, Role),
    ) -> usize {
        let cost = if ask.refund { Cost::refund(hits) } else { Cost::take(hits) };
        let role = limit.role(denying);
        let mut charge = Charge { algorithm, cost, role, is_prepaid: limit.is_prepaid, ..limit.charge() };
        // A limit of 0 denies a charge as well.
        let most = charge.algorithm.most();
        if let (Some(reserve), Some(_), false, 1..) = (limit.limit.reserve, ask.hits, ask.refund, most) {
            let reserve = i128::from(reserve).min(most);
            match hits {
                0 => charge.cost = Cost::take(reserve),
                _ => {
                    charge.cost = if hits > reserve {
                        Cost::take(hits - reserve)
                    } else {
                        Cost::refund(reserve - hits)
                    };
                    (charge.role, charge.is_prepaid) = (Role::Booked, false);
                }
            }
        }
        self.gives_receipt |= limit.limit.settle;
        let last = |charges: &[Charge], counter: &str| {
            charges.iter().rposition(|other| other.counter == counter && other.role != Role::Settle)
        };
        // Costs of different limits on one counter have no sum (decision 49).
        // A limit of 0 tells the end of its window, which another one on this path need not have.
        let told = |algorithm: &Algorithm| {
            let window = algorithm.calendar.as_ref().map(|calendar| calendar.window(self.now_us));
            (algorithm.kind == Kind::Zero).then(|| window.unwrap_or((0, algorithm.period_us)))
        };
        let is_other =
            |one: &Algorithm, other: &Algorithm| numbers(one) != numbers(other) || told(one) != told(other);
        if let Some(before) = last(&self.charges, &charge.counter)
            && is_other(&self.charges[before].algorithm, &charge.algorithm)
        {
            charge.counter = numbered(&charge.counter, &charge.algorithm);
        }
        if let Some(index) = last(&self.charges, &charge.counter) {
            let before = &mut self.charges[index];
            let is_again = charge.cost.is_peek && before.cost == charge.cost;
            if before.is_prepaid || charge.is_prepaid || is_again {
                before.cost = before.cost.plus(charge.cost);
                if charge.is_prepaid && !before.is_prepaid {
                    (before.is_prepaid, before.role) = (true, charge.role);
                }
                return index;
            }
        }
        self.charges.push(charge);
        self.charges.len() - 1
    }

    /// The receipt of an admitted call that meets a limit with `settle`.
    pub(super) fn receipt(&self, outcomes: &[Outcome], is_denied: bool) -> Option<Receipt> {
        let mut receipt = Receipt::new();
        for (charge, outcome) in self.charges.iter().zip(outcomes) {
            let Some(after) = outcome.after.as_ref().filter(|_| charge.has_counter()) else { continue };
            let units = charge.cost.units;
            if !charge.limit.settle || charge.role == Role::Settle || outcome.is_over || units <= 0 {
                continue;
            }
            match receipt.iter_mut().find(|(counter, ..)| *counter == charge.counter) {
                Some((_, sum, _)) => *sum += units,
                None => {
                    let grant = (charge.algorithm.grant(after, units), charge.algorithm.limit);
                    receipt.push((charge.counter.clone(), units, grant));
                }
            }
        }
        (self.gives_receipt && !is_denied).then_some(receipt)
    }
}

impl InForce {
    fn never_denies(&self) -> bool {
        self.is_shadow || self.limit.on_over.as_deref() == Some("announce")
    }

    fn capacity(&self) -> i128 {
        if self.is_blocked { 0 } else { capacity(&self.limit) }
    }

    fn role(&self, denying: Role) -> Role {
        match self.limit.on_over.as_deref() {
            _ if self.is_blocked => Role::Enforce,
            _ if self.is_shadow => Role::Shadow,
            Some("announce") => Role::Announced,
            _ => denying,
        }
    }

    /// A charge of nothing to this limit.
    fn charge(&self) -> Charge {
        let limit = if self.is_blocked {
            Limit { requests_per_unit: Some(0), burst: None, ..self.limit.clone() }
        } else {
            self.limit.clone()
        };
        Charge {
            label: self.label.clone(),
            counter: self.counter.clone(),
            algorithm: Algorithm {
                kind: Kind::Zero,
                limit: 0,
                burst: 0,
                period_us: 1,
                calendar: None,
                is_queue: false,
            },
            cost: Cost::NOTHING,
            role: Role::Enforce,
            is_prepaid: self.is_prepaid,
            limit,
        }
    }
}
