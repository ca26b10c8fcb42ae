//! Sets the used units of one counter, or adds to them.

use std::sync::Arc;

use engine::{
    Charge, Charges, Charging, Cost, Descriptor, Explanation, Limit, LimitUse, Outcome, Request, Reset, Role,
    Store,
};

use super::CounterService;
use crate::decide::NoDecision;

/// Most units of a change; no limit is larger.
pub const MOST_UNITS: u64 = 1 << 52;

/// What becomes of the used units of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are exactly this many, as if the counter had been unused and this many units were taken now.
    Set(u64),
    /// This many units more, as if they were taken now; if negative, units are returned, at most all.
    Add(i64),
}

/// A counter that was changed.
#[derive(Clone, Debug)]
pub struct ChangedCounter {
    /// Without the store's prefix.
    pub key: String,
    pub limit: Arc<Limit>,
    /// After the change, units.
    pub used: u64,
    /// Units that can be taken after the change.
    pub remaining: u64,
}

/// Why a counter is not changed. No message contains a value of the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    NoDecision(#[from] NoDecision),
    /// No limit of the descriptor is counted: no rule matches, or the domain does not exist.
    #[error("no counted limit matches the descriptor")]
    NoCounter,
    #[error("no counted limit of the descriptor has the name {name:?}; it has {}", .known.join(", "))]
    NoSuchLimit { name: String, known: Vec<String> },
    #[error("the descriptor has {} counted limits, choose one by its name: {}", .known.len(), .known.join(", "))]
    Ambiguous { known: Vec<String> },
    #[error("{limit} has no counter: it is 0, or an exception blocks the descriptor")]
    Blocked { limit: String },
    #[error("used may be at most {most} for {limit}: its algorithm keeps no more than twice the limit")]
    TooMany { limit: String, most: u64 },
}

/// A counter that a descriptor uses.
struct Found {
    key: String,
    charge: Charge,
    limit: Arc<Limit>,
}

impl<S: Store + Reset> CounterService<S> {
    /// Changes the counter of one limit of the only descriptor of `request`: of the limit with this name, or of the
    /// only one. Calls `audit` with its key first.
    ///
    /// # Errors
    /// [`ChangeError`]. After [`NoDecision::Store`] the counter may have changed.
    pub async fn change(
        &self,
        request: &Request,
        limit_name: Option<&str>,
        change: Change,
        audit: impl FnOnce(&str),
    ) -> Result<ChangedCounter, ChangeError> {
        let mut found = self.find(request, limit_name)?;
        let Some(Found { key, charge, limit }) = found.pop().filter(|_| found.is_empty()) else {
            return Err(ChangeError::Ambiguous {
                known: self.find(request, None)?.iter().map(name).collect(),
            });
        };
        let most = charge.kernel.most_recorded().min(MOST_UNITS);
        if !charge.kernel.has_counter() {
            return Err(ChangeError::Blocked { limit: limit.label.to_string() });
        }
        if matches!(change, Change::Set(units) if units > most) {
            return Err(ChangeError::TooMany { limit: limit.label.to_string(), most });
        }
        audit(&key);
        let cost = match change {
            Change::Set(units) => Cost::take(units),
            Change::Add(units) if units < 0 => Cost::refund(units.unsigned_abs()),
            Change::Add(units) => Cost::take(units.unsigned_abs()),
        };
        let charge = Charge { cost, charging: Charging::Postpaid, role: Role::Shadow, ..charge };
        let max_cost = charge.kernel.max_cost();
        let Outcome { report, .. } = match change {
            Change::Set(_) => self.store.replace(&key, &charge).await,
            Change::Add(_) => {
                let mut charges = Charges::default();
                charges.push_apart(charge, &key);
                self.store.decide(&charges).await.map(|outcomes| outcomes.by_charge[0])
            }
        }
        .map_err(NoDecision::from)?;
        let used = max_cost.saturating_sub(report.remaining).saturating_add(report.over_by);
        Ok(ChangedCounter { key, limit, used, remaining: report.remaining })
    }

    /// Returns the counters of the limits with this name that the descriptors use, as charges.
    pub(super) fn named(&self, request: &Request, limit_name: &str) -> Result<Charges, ChangeError> {
        let mut charges = Charges::default();
        for descriptor in &request.descriptors {
            let request = Request { descriptors: vec![descriptor.clone()], ..request.clone() };
            for Found { key, charge, .. } in self.find(&request, Some(limit_name))? {
                charges.push_apart(charge, &key);
            }
        }
        Ok(charges)
    }

    /// Returns the counters of the only descriptor of `request`: those of all its limits, or of the ones with this
    /// name. At least one.
    fn find(&self, request: &Request, limit_name: Option<&str>) -> Result<Vec<Found>, ChangeError> {
        // With a hit, so that neither a check nor a refund leaves a limit out.
        let plain = |descriptor: &Descriptor| Descriptor {
            hits: Some(1),
            is_refund: false,
            attached: None,
            ..descriptor.clone()
        };
        let descriptors = request.descriptors.iter().map(plain).collect();
        let rules = self.rulebook.rules();
        let request = Request { descriptors, ..request.clone() };
        let explained = Explanation::new(&rules, &request, self.clock.now_us()).map_err(NoDecision::from)?;
        let plan = &explained.plan;
        let limits = explained.descriptors.into_iter().flat_map(|described| described.limits);
        let mut all: Vec<Found> = limits
            .filter_map(|limit| {
                let LimitUse::Charged(index) = limit.planned else { return None };
                let (key, charge) = plan.charges.get(index);
                Some(Found { key: key.to_owned(), charge: charge.clone(), limit: limit.limit })
            })
            .collect();
        let Some(wanted) = limit_name else {
            return if all.is_empty() { Err(ChangeError::NoCounter) } else { Ok(all) };
        };
        let known = all.iter().map(name).collect();
        all.retain(|found| *found.limit.label == *wanted);
        match (all.is_empty(), known) {
            (false, _) => Ok(all),
            (true, known) if Vec::is_empty(&known) => Err(ChangeError::NoCounter),
            (true, known) => Err(ChangeError::NoSuchLimit { name: wanted.to_owned(), known }),
        }
    }
}

fn name(found: &Found) -> String {
    format!("{:?}", found.limit.label)
}
