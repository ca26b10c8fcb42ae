//! Acts on offences and on the pauses that callers report. Offences are counted in the store, beside the counter that
//! denied.

use std::sync::Arc;
use std::time::Duration;

use base::log_throttle::LogThrottle;
use base::readable_duration;
use engine::{
    Charge, Charges, Charging, Cost, FailurePolicy, PauseCause, PauseEvent, PausedValue, Penalty, Reset,
    Role, Store,
};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{Mutex, mpsc};

use super::{LiveError, LiveExceptions, Pause, PauseEnd, Paused};
use crate::telemetry::metrics::PauseMeter;

#[cfg(test)]
mod tests;

/// Events in progress. The others wait in their channel.
const AT_ONCE: usize = 64;

/// Acts on events from all limiters.
#[derive(Debug)]
pub struct Penalties<S> {
    store: S,
    live: LiveExceptions,
    meter: PauseMeter,
    /// Held while a report is acted on: a hundred workers with the same answer are one write.
    turn: Mutex<()>,
    ban_lines: LogThrottle,
    failure_lines: LogThrottle,
}

impl<S: Store + Reset> Penalties<S> {
    /// `store`: the counters, without layers that answer for them.
    pub fn new(store: S, live: LiveExceptions, meter: PauseMeter) -> Self {
        let (turn, ban_lines, failure_lines) = Default::default();
        Self { store, live, meter, turn, ban_lines, failure_lines }
    }

    /// Runs until all senders are gone.
    pub async fn run(self, mut events: mpsc::Receiver<PauseEvent>) {
        let events = stream::poll_fn(|context| events.poll_recv(context));
        events.for_each_concurrent(AT_ONCE, |event| self.act(event)).await;
    }

    async fn act(&self, event: PauseEvent) {
        let acted = match &event.cause {
            PauseCause::Offence { value, penalty, counter } => {
                self.count_offence(&event, value, penalty, counter).await
            }
            PauseCause::Reported { value, until_us } => {
                let _turn = self.turn.lock().await;
                let end = PauseEnd::Feedback { until_us: *until_us };
                let paused =
                    self.live.pause(pause(&event, value, "reported by a caller".to_owned(), end)).await;
                paused.map(|paused| self.meter.paused(&event, paused != Paused::Kept))
            }
            PauseCause::Unreadable | PauseCause::Refused => Ok(()),
        };
        if let Err(error) = acted {
            self.meter.dropped.inc();
            if let Some(events) = self.failure_lines.count() {
                tracing::warn!(events, rule = &*event.rule, %error, "cannot pause values");
            }
        }
    }

    /// Counts an offence, and bans the value if it is one too many.
    async fn count_offence(
        &self,
        event: &PauseEvent,
        value: &PausedValue,
        penalty: &Penalty,
        counter: &str,
    ) -> Result<(), LiveError> {
        let offence = offence(counter, penalty);
        if !self.store.decide(&offence).await?.is_over(0) {
            return Ok(());
        }
        let Penalty { after, within_us, for_us, grow, max_us, .. } = *penalty;
        let within = readable_duration(Duration::from_micros(within_us));
        let reason = format!("{after} denials within {within} by {}", event.rule);
        let end = PauseEnd::Ban { for_us, grow: grow.into(), max_us };
        let paused = self.live.pause(pause(event, value, reason, end)).await?;
        // Not during the ban, but if an operator ends it: the next denial is then the first one again.
        self.store.reset(&offence).await?;
        if let Paused::Set { level, .. } = paused {
            self.meter.banned(event);
            if let Some(bans) = self.ban_lines.count() {
                let (domain, rule, key) = (&*event.domain, &*event.rule, &*value.key);
                let value = (self.live.0.options.mask)(domain, key, &value.value);
                tracing::info!(bans, domain, rule, key, value, level, "values banned");
            }
        }
        Ok(())
    }
}

/// Charges one offence to the denial counter of `counter`.
fn offence(counter: &str, penalty: &Penalty) -> Charges {
    let charge = Charge {
        kernel: penalty.kernel(),
        cost: Cost::take(1),
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    };
    let mut charges = Charges::default();
    charges.push(charge, |text| text.extend([counter, "#pn"]));
    charges
}

fn pause(event: &PauseEvent, value: &PausedValue, reason: String, end: PauseEnd) -> Pause {
    let PausedValue { key, value, path } = value;
    Pause {
        domain: Arc::clone(&event.domain),
        key: Arc::clone(key),
        value: Arc::clone(value),
        path: path.clone(),
        reason,
        end,
    }
}
