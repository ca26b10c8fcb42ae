//! Sets the used units of one counter, or adds to them.

use std::sync::Arc;

use engine::algorithm::Kernel;
use engine::{Charge, Charges, Charging, Cost, Limit, Request, Reset, Role, Store};

use super::CounterService;
use crate::decide::NoDecision;

/// Most units of a change; no limit is larger.
pub const MOST_UNITS: u64 = 1 << 52;

/// What becomes of the used units of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are exactly this many, as if this many units were charged now to an unused counter.
    Set(u64),
    /// This many units more, as if they were taken now; if negative, units are returned, at most all.
    Add(i64),
}

/// A changed counter.
#[derive(Clone, Debug)]
pub struct ChangedCounter {
    /// Without the store's prefix.
    pub key: String,
    /// The limit's name, or else the path of its rule.
    pub name: String,
    /// Most units that can be taken at once; `None` if unlimited.
    pub limit: Option<u64>,
    /// After the change, units.
    pub used: u64,
    /// Units that can be taken after the change; `None` if unlimited.
    pub remaining: Option<u64>,
}

/// Why a counter is not changed. No message contains a value of the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    NoDecision(#[from] NoDecision),
    /// No limit of the descriptor is counted: no rule matches, or the domain does not exist.
    #[error("no counted limit matches the descriptor")]
    NoCounter,
    /// No limit is counted, because an exception or a limit of 0 blocks the descriptor.
    #[error("a limit of 0 or an exception blocks the descriptor, so it has no counter to change")]
    Blocked,
    /// The names of the counted limits.
    #[error("choose a limit by its name, one of: {}", .0.join(", "))]
    Choose(Vec<String>),
    /// The limit's name.
    #[error("only requests take the slots of the limit {0}; a reset releases all")]
    Slots(String),
    #[error("used may be at most {most} for the limit {limit}, whose algorithm keeps no more")]
    TooMany { limit: String, most: u64 },
}

impl<S: Store + Reset> CounterService<S> {
    /// Changes the counter of one limit of the request: of the limit with this name, or of the only one. Calls `audit`
    /// with its key first.
    ///
    /// # Errors
    /// [`ChangeError`]. If the store does not answer, the counter may have changed.
    pub async fn change(
        &self,
        request: &Request,
        limit_name: Option<&str>,
        change: Change,
        audit: impl FnOnce(&str),
    ) -> Result<ChangedCounter, ChangeError> {
        let (charges, limits) = self.find(request, limit_name)?;
        let [limit] = &*limits else { return Err(ChangeError::Choose(names(&limits))) };
        let (key, charge) = charges.get(0);
        if !charge.kernel.is_freed_by_time() {
            return Err(ChangeError::Slots(limit.label.to_string()));
        }
        let most = charge.kernel.most_recorded().min(MOST_UNITS);
        let cost = match change {
            Change::Set(units) if units > most => {
                return Err(ChangeError::TooMany { limit: limit.label.to_string(), most });
            }
            Change::Set(units) => Cost::take(units),
            Change::Add(units) if units < 0 => Cost::refund(units.unsigned_abs()),
            Change::Add(units) => Cost::take(units.unsigned_abs()),
        };
        audit(key);
        let changed = Charge { cost, charging: Charging::Postpaid, role: Role::Shadow, ..charge.clone() };
        let outcome = match change {
            Change::Set(_) => self.store.replace(key, &changed).await,
            Change::Add(_) => {
                let charges = charges.filter_map(|_, _| Some(changed.clone()));
                self.store.decide(&charges).await.map(|outcomes| outcomes.by_charge[0])
            }
        };
        let report = outcome.map_err(NoDecision::from)?.report;
        let used = charge.kernel.max_cost().saturating_sub(report.remaining) + report.over_by;
        let (key, name) = (key.to_owned(), limit.label.to_string());
        let bound = |units| (!limit.spec.unlimited).then_some(units);
        let (limit, remaining) = (bound(charge.kernel.max_cost()), bound(report.remaining));
        Ok(ChangedCounter { key, name, limit, used, remaining })
    }

    /// Returns a peek on each counter of the request, or of its limits with this name, and the limits.
    pub(super) fn find(
        &self,
        request: &Request,
        limit_name: Option<&str>,
    ) -> Result<(Charges, Vec<Arc<Limit>>), ChangeError> {
        let peeks = self.peeks(request)?;
        let limits = peeks.descriptors.iter().flatten();
        let with_peek = limits.filter_map(|applied| Some((applied.peek?, &applied.limit)));
        let is_blocked = |peek: usize| matches!(peeks.charges.get(peek).1.kernel, Kernel::Blocked(_));
        let (blocked, counted): (Vec<_>, Vec<_>) = with_peek.partition(|(peek, _)| is_blocked(*peek));
        let (mut charges, mut chosen) = (Charges::default(), Vec::new());
        for (peek, (key, charge)) in peeks.charges.iter().enumerate() {
            let is_chosen = |limit: &Limit| limit_name.is_none_or(|name| *name == *limit.label);
            let of_counter = counted.iter().find(|(index, limit)| *index == peek && is_chosen(limit));
            if let Some((_, limit)) = of_counter {
                charges.push_apart(charge.clone(), key);
                chosen.push(Arc::clone(limit));
            }
        }
        match (counted.is_empty(), chosen.is_empty()) {
            (true, _) if blocked.is_empty() => Err(ChangeError::NoCounter),
            (true, _) => Err(ChangeError::Blocked),
            (_, true) => Err(ChangeError::Choose(names(counted.into_iter().map(|(_, limit)| limit)))),
            _ => Ok((charges, chosen)),
        }
    }
}

fn names<'l>(limits: impl IntoIterator<Item = &'l Arc<Limit>>) -> Vec<String> {
    limits.into_iter().map(|limit| format!("{:?}", limit.label)).collect()
}
