//! Gives live exceptions what they need of the process.

use std::sync::Arc;

use base::clock::SystemClock;
use store::redis::RedisStore;

use super::App;
use super::fleet::Fleet;
use crate::decide::PauseEvents;
use crate::live::{Keeper, LiveExceptions, LiveOptions, Penalties};
use crate::settings::{Settings, StoreKind};

/// `true` if Redis keeps the rows.
pub(super) fn keeps_live_rows(settings: &Settings) -> bool {
    settings.store.kind == StoreKind::Redis && settings.exceptions.redis
}

impl App {
    /// Returns the sender of offences and reported pauses, and the task that acts on them.
    pub(super) fn pauses(
        &self,
        redis: Option<RedisStore>,
        live: &LiveExceptions,
    ) -> (PauseEvents, impl Future<Output = ()> + use<>) {
        let meter = self.metrics.families.pauses.clone();
        let (pauses, events) = PauseEvents::channel(meter.clone());
        let penalties = Penalties::new(self.stores.authoritative(redis), live.clone(), meter);
        (pauses, penalties.run(events))
    }

    /// Returns what this process reports to the other instances, and what it reads of them.
    pub(super) fn fleet(&self, redis: Option<&RedisStore>) -> Fleet {
        let reports_to = redis.filter(|_| self.settings.exceptions.redis).cloned();
        let share = (Arc::clone(&self.stores.local_share), self.settings.local_share);
        Fleet::new(self.rules.active.clone(), self.readiness.clone(), reports_to, share)
    }

    pub(super) fn live_exceptions(&self, redis: Option<&RedisStore>, fleet: &Fleet) -> LiveExceptions {
        let keeper = match redis {
            None => Keeper::Process,
            Some(redis) if self.settings.exceptions.redis => Keeper::Redis(redis.clone()),
            Some(_) => Keeper::Nowhere,
        };
        let (console, stores) = (Arc::clone(&self.console), Arc::clone(&self.stores));
        let reporting = fleet.clone();
        LiveExceptions::new(LiveOptions {
            keeper,
            rulebook: Arc::clone(&self.rules.active.rulebook),
            metrics: self.metrics.clone(),
            clock: Arc::new(SystemClock),
            on_change: Box::new(move || stores.purge_denials()),
            mask: Arc::new(move |domain, key, value| console.masked_value(domain, key, value)),
            confirmed_at: self.live_confirmed_at.shared(),
            instance: fleet.name.clone(),
            status: Arc::new(move |version| reporting.status(version).to_string()),
        })
    }
}
