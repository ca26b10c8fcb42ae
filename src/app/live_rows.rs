//! Gives live exceptions what they need of the process.

use std::sync::Arc;

use base::clock::SystemClock;
use store::redis::RedisStore;

use super::App;
use super::fleet::Fleet;
use super::worker_store::AuthoritativeStore;
use crate::live::{Keeper, LiveExceptions, LiveOptions, Penalties};
use crate::settings::{Settings, StoreKind};

/// `true` if Redis keeps the rows.
pub(super) fn keeps_live_rows(settings: &Settings) -> bool {
    settings.store.kind == StoreKind::Redis && settings.exceptions.redis
}

impl App {
    /// Acts on offences and reported pauses.
    pub(super) fn penalties(
        &self,
        redis: Option<RedisStore>,
        live: &LiveExceptions,
    ) -> Penalties<AuthoritativeStore> {
        Penalties::new(self.stores.authoritative(redis), live.clone(), self.metrics.families.pauses.clone())
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
