//! Sends notices in a task, one after the other: if a receiver is slow, the queue waits, and other processes send
//! meanwhile. No request waits for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::hex;
use base::log_throttle::LogThrottle;
use engine::{BookingMode, OnOver, StoreError};
use store::marks::{MarkId, MemoryMarks};
use store::redis::RedisStore;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::message::{id_of, message, number_of};
use super::reached::{Notices, Reached};
use super::webhook::{Failure, LONGEST_WAIT, Webhook};
use super::{NotifyStats, count};
use crate::ledger::{Ledger, Line, entries_of};

/// Between two marks in Redis: at most 100 a second.
const MARK_INTERVAL: Duration = Duration::from_millis(10);
/// After a mark that Redis did not answer.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// After a mark that Redis did not permit.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);
/// Of one message. 1, 2, 4 ... 64 s pass between them.
const MAX_ATTEMPTS: u32 = 8;
/// What is queued when the process ends is tried for this long.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// What the task needs of the process.
pub struct NotifierParts {
    /// `None`: only the log and the ledger report it.
    pub webhook: Option<Webhook>,
    /// Where marks are set; `None`: in this process's memory.
    pub redis: Option<RedisStore>,
    pub ledger: Option<Arc<Ledger>>,
    pub clock: Arc<dyn Clock>,
    /// Returns a counter's key as it may be logged.
    pub mask: Box<dyn Fn(&str) -> String + Send + Sync>,
    /// The name of this process in Redis.
    pub process: String,
    pub stats: Arc<NotifyStats>,
}

/// Reports until the process ends.
pub struct Notifier {
    parts: NotifierParts,
    queue: mpsc::Receiver<Reached>,
    /// The marks of this process; all marks, without Redis or its permission.
    marks: MemoryMarks,
    pace: Interval,
    forbidden_until: Option<Instant>,
    /// Taken from the queue, not yet marked.
    found: Option<Reached>,
    /// Marked, not yet sent.
    unsent: Option<Unsent>,
    unmarked_lines: LogThrottle,
    unsent_lines: LogThrottle,
}

struct Unsent {
    id: String,
    body: Vec<u8>,
    attempts: u32,
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("webhook", &self.parts.webhook).finish_non_exhaustive()
    }
}

impl Notifier {
    /// Also returns the workers' sides.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(parts: NotifierParts) -> (Notices, Self) {
        let (notices, queue) = Notices::channel(Arc::clone(&parts.clock), Arc::clone(&parts.stats));
        let pace = base::ticks(MARK_INTERVAL);
        let (marks, forbidden_until, found, unsent, unmarked_lines, unsent_lines) = Default::default();
        let notifier =
            Self { parts, queue, marks, pace, forbidden_until, found, unsent, unmarked_lines, unsent_lines };
        (notices, notifier)
    }

    /// Runs until `stop`, then tries what is queued once, within 2 s.
    pub async fn run(&mut self, stop: &CancellationToken) {
        stop.run_until_cancelled(self.tell_all(false)).await;
        if timeout(FLUSH_WITHIN, self.tell_all(true)).await.is_err() {
            let lost = self.queue.len() + usize::from(self.found.is_some());
            (0..lost).for_each(|_| count(&self.parts.stats.dropped));
            self.unsent.iter().for_each(|_| count(&self.parts.stats.failed));
        }
    }

    /// `is_last`: only what is queued, and one attempt each. Can be dropped and called again.
    async fn tell_all(&mut self, is_last: bool) {
        loop {
            self.send(is_last).await;
            if self.found.is_none() {
                let next = if is_last { self.queue.try_recv().ok() } else { self.queue.recv().await };
                let Some(found) = next else { return };
                self.found = Some(found);
            }
            self.mark().await;
        }
    }

    /// Marks what was found, and reports it if it was not marked before.
    async fn mark(&mut self) {
        self.pace.tick().await;
        let Some(found) = &self.found else { return };
        let begin_us = found.level.window_us.map(|(begin_us, _)| begin_us);
        let (id, now_us) = (id_of(found, begin_us), self.parts.clock.now_us());
        let rest_us = found.rest_us(now_us);
        if rest_us == 0 {
            found.forget();
            count(&self.parts.stats.dropped);
        } else {
            match self.is_first(&id, now_us, rest_us).await {
                Ok(false) => count(&self.parts.stats.known),
                Ok(true) => {
                    self.marks.mark_once(&id, now_us, rest_us);
                    self.tell();
                }
                Err(error) => self.forget_all(&error).await,
            }
        }
        self.found = None;
    }

    async fn is_first(&mut self, id: &MarkId, now_us: u64, rest_us: u64) -> Result<bool, StoreError> {
        if self.marks.is_set(id, now_us) {
            return Ok(false);
        }
        let NotifierParts { redis, process, .. } = &self.parts;
        let is_permitted = self.forbidden_until.is_none_or(|until| until <= Instant::now());
        let Some(redis) = redis.as_ref().filter(|_| is_permitted) else { return Ok(true) };
        match redis.mark_once(id, process, rest_us).await {
            Err(StoreError::Forbidden(error)) if error.starts_with("NOPERM") => {
                if self.forbidden_until.replace(Instant::now() + FORBIDDEN_PAUSE).is_none() {
                    tracing::warn!(
                        error,
                        "Redis does not permit SET for notify; each process reports for itself"
                    );
                }
                Ok(true)
            }
            marked => marked,
        }
    }

    /// After an error of the store: what waits is forgotten, so that the next requests find it again.
    async fn forget_all(&mut self, error: &StoreError) {
        let found = self.found.take().into_iter();
        let waiting = std::iter::from_fn(|| self.queue.try_recv().ok());
        found.chain(waiting).for_each(|reached| {
            reached.forget();
            count(&self.parts.stats.dropped);
        });
        if let Some(times) = self.unmarked_lines.count() {
            tracing::warn!(times, %error, "cannot mark a notice in Redis; nothing is reported until it answers");
        }
        sleep(STORE_PAUSE).await;
    }

    /// Reports to the log and the ledger, and to the receiver next.
    fn tell(&mut self) {
        let Some(found) = &self.found else { return };
        let NotifierParts { ledger, mask, stats, webhook, .. } = &self.parts;
        // A mark of an algorithm without windows is set again, and then the message is another one.
        let begin_us = found.level.window_us.map_or(found.level.now_us, |(begin_us, _)| begin_us);
        let id = hex(&id_of(found, Some(begin_us)));
        let (domain, rule, of) = (&*found.domain, &*found.rule, found.level.of);
        let (share, used, key) = (found.share, found.level.used, mask(&found.key));
        tracing::info!(id, domain, rule, %share, used, of, key, "a share of a limit is used");
        if let Some(ledger) = ledger {
            let is_soft = found.spec.on_over == OnOver::Announce;
            let mode = if is_soft { BookingMode::Soft } else { BookingMode::Enforced };
            ledger.add_line(Line {
                at: found.level.now_us / 1_000_000,
                domain: domain.to_owned().into(),
                rule: rule.to_owned().into(),
                entries: entries_of(&found.key),
                of,
                reached: Some(number_of(found.share)),
                mode: mode.into_str().into(),
                ..Line::default()
            });
        }
        if webhook.is_none() {
            return count(&stats.sent);
        }
        let body = message(found).to_string().into_bytes();
        self.unsent = Some(Unsent { id, body, attempts: 0 });
    }

    /// Sends what is marked, with pauses between the attempts.
    async fn send(&mut self, is_last: bool) {
        let NotifierParts { webhook, clock, stats, .. } = &self.parts;
        let Some((webhook, unsent)) = webhook.as_ref().zip(self.unsent.as_mut()) else { return };
        loop {
            let Err(failure) = webhook.send(&unsent.id, &unsent.body, &**clock).await else {
                count(&stats.sent);
                break;
            };
            unsent.attempts += 1;
            let Failure { reason, is_temporary, retry_after } = failure;
            if let Some(times) = self.unsent_lines.count() {
                let (receiver, attempt) = (webhook.receiver(), unsent.attempts);
                tracing::warn!(
                    times,
                    id = unsent.id,
                    attempt,
                    receiver,
                    last = reason,
                    "cannot send a notice"
                );
            }
            if is_last || !is_temporary || unsent.attempts >= MAX_ATTEMPTS {
                count(&stats.failed);
                break;
            }
            let pause = Duration::from_secs(1 << (unsent.attempts - 1));
            sleep(pause.max(retry_after.unwrap_or_default()).min(LONGEST_WAIT)).await;
        }
        self.unsent = None;
    }
}
