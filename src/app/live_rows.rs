//! Gives live exceptions, and the tasks behind the workers' queues, what they need of the process.

use std::sync::Arc;

use base::clock::SystemClock;
use store::redis::RedisStore;

use super::fleet::Fleet;
use super::{App, AppError};
use crate::decide::PauseEvents;
use crate::live::{Keeper, LiveExceptions, LiveOptions, Penalties};
use crate::notify::{Notices, Notifier, NotifierParts, Webhook};
use crate::settings::{Settings, StoreKind};

/// `true` if Redis keeps the rows.
pub(super) fn keeps_live_rows(settings: &Settings) -> bool {
    settings.store.kind == StoreKind::Redis && settings.exceptions.redis
}

/// Where limiters hand over what tasks do.
#[derive(Clone, Debug)]
pub(super) struct TaskQueues {
    pub(super) pauses: PauseEvents,
    pub(super) notices: Arc<Notices>,
}

impl App {
    /// Returns the sender of offences and reported pauses, and the task that acts on them.
    fn pauses(
        &self,
        redis: Option<RedisStore>,
        live: &LiveExceptions,
    ) -> (PauseEvents, impl Future<Output = ()> + use<>) {
        let meter = self.metrics.families.pauses.clone();
        let (pauses, events) = PauseEvents::channel(meter.clone());
        let penalties = Penalties::new(self.stores.authoritative(redis), live.clone(), meter);
        (pauses, penalties.run(events))
    }

    /// Returns the workers' queues, and the tasks behind them.
    pub(super) fn task_queues(
        &self,
        redis: Option<&RedisStore>,
        live: &LiveExceptions,
        fleet: &Fleet,
    ) -> Result<(TaskQueues, impl Future<Output = ()> + use<>, Notifier), AppError> {
        let (pauses, act_on_pauses) = self.pauses(redis.cloned(), live);
        let (notices, notifier) = self.notices(redis.cloned(), fleet)?;
        Ok((TaskQueues { pauses, notices: Arc::new(notices) }, act_on_pauses, notifier))
    }

    /// Returns where workers look for notices, and the task that sends them. Reads the secret once, to check it.
    fn notices(&self, redis: Option<RedisStore>, fleet: &Fleet) -> Result<(Notices, Notifier), AppError> {
        let options = self.settings.webhook.clone();
        options
            .iter()
            .try_for_each(|options| options.secret().map(drop))
            .map_err(AppError::of("notify.secret_file"))?;
        let (console, rulebook) = (Arc::clone(&self.console), Arc::clone(&self.rules.active.rulebook));
        Ok(Notifier::new(NotifierParts {
            webhook: options.map(Webhook::new).transpose().map_err(AppError::of("notify.ca_file"))?,
            redis,
            ledger: self.ledger.clone(),
            clock: Arc::new(SystemClock),
            mask: Box::new(move |key| console.logged(&rulebook.rules(), key)),
            process: fleet.name.clone(),
            stats: Arc::clone(&self.notify_stats),
        }))
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
