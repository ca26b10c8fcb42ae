//! Hands the offences of denied requests, and the pauses that callers report, to the task that acts on them. A request
//! never waits for it.

use engine::{Decision, PauseCause, PauseEvent, Request};
use tokio::sync::mpsc;

use crate::telemetry::metrics::PauseMeter;

/// Events that wait for the task. Later ones are dropped.
const MAX_EVENTS: usize = 1_024;

/// Where limiters send events. The default sends nothing, for processes without the task.
#[derive(Clone, Debug, Default)]
pub struct PauseEvents(Option<(mpsc::Sender<PauseEvent>, PauseMeter)>);

impl PauseEvents {
    /// Also returns the receiver for the task.
    pub fn channel(meter: PauseMeter) -> (Self, mpsc::Receiver<PauseEvent>) {
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        (Self(Some((sender, meter))), events)
    }

    /// Counts and sends what a decision says about pauses.
    pub(super) fn send(&self, decision: &Decision, request: &Request) {
        let Some((sender, meter)) = &self.0 else { return };
        for event in decision.reported_pauses().iter().cloned().chain(decision.offences(request)) {
            meter.count(&event);
            let is_for_task = matches!(event.cause, PauseCause::Offence { .. } | PauseCause::Reported { .. });
            if is_for_task && sender.try_send(event).is_err() {
                meter.dropped.inc();
            }
        }
    }
}
