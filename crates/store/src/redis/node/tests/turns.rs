//! Callers take turns: one caller's requests do not delay another's.

use engine::algorithm::{FixedWindow, Kernel};
use engine::{Caller, Charge, Charges, Charging, Cost, FailurePolicy, Role};

use super::*;

/// Duration of a call of up to 128 requests.
const CALL: Duration = MS;

/// Requests that one connection can have in flight.
const IN_FLIGHT: usize = 1_000;
const BUSY: Caller = Caller(1);

/// Requests of a quiet caller; the next constant is the pause between them.
const QUIET_REQUESTS: usize = 50;
const QUIET_EVERY: Duration = Duration::from_millis(7);

/// A request for one counter that no other request uses.
fn request_of(caller: Caller) -> EncodedRequest {
    let mut charges = Charges::default();
    charges.set_caller(caller);
    let hit = Charge {
        kernel: Kernel::FixedWindow(FixedWindow::new(5, 1_000_000)),
        cost: Cost::take(1),
        charging: Charging::Postpaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    };
    charges.push(hit, |text| text.push_str(&format!("{:x}", fastrand::u64(..))));
    EncodedRequest::new(&charges, "test:")
}

fn server_with_calls_of(time: Duration) -> FakeServer {
    deciding(move |call| Reply::After(time, Box::new(Reply::granted(call))))
}

impl Case {
    async fn decide_for(&self, caller: Caller) -> Result<RequestReply, StoreError> {
        let deadline = Instant::now() + 15 * MS;
        Ok(self.node.call(request_of(caller), CallMode::Batched(None), deadline).await?)
    }

    /// Sends one request after another, with pauses. Returns the longest wait for an answer.
    async fn ask_quietly(&self, caller: Caller) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..QUIET_REQUESTS {
            sleep(QUIET_EVERY).await;
            let asked = Instant::now();
            self.decide_for(caller).await.expect("a quiet caller gets its answers");
            longest = longest.max(asked.elapsed());
        }
        longest
    }

    /// Keeps [`IN_FLIGHT`] requests in flight forever. `times` counts the answers to each.
    async fn keep_busy(&self, times: &[Mutex<Tally>]) {
        let asks = times.iter().map(async |tally| {
            loop {
                let answer = self.decide_for(BUSY).await;
                tally.lock().add(&answer);
                if answer.is_err() {
                    sleep(CALL).await;
                }
            }
        });
        join_all(asks).await;
    }

    /// Returns the longest wait of a quiet caller next to a busy one, and the busy one's answers.
    async fn beside_a_busy_caller(&self, quiet: &[Caller]) -> (Duration, Vec<Tally>) {
        let times: Vec<Mutex<Tally>> = (0..IN_FLIGHT).map(|_| Mutex::default()).collect();
        let longest = tokio::select! {
            waits = join_all(quiet.iter().map(|&caller| self.ask_quietly(caller))) => waits.into_iter().max(),
            () = self.keep_busy(&times) => None,
        };
        let times = times.into_iter().map(Mutex::into_inner).collect();
        (longest.expect("the busy caller never ends"), times)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    decided: usize,
    refused: usize,
}

impl Tally {
    fn add(&mut self, answer: &Result<RequestReply, StoreError>) {
        match answer {
            Ok(_) => self.decided += 1,
            Err(StoreError::Overloaded) => self.refused += 1,
            Err(other) => panic!("too many requests are no outage: {other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_of_one_caller_delay_another_caller_by_one_call() {
    let _server = server_with_calls_of(CALL);
    let case = case(&options(), NoopObserver);
    let quiet: Vec<Caller> = (2..12).map(Caller).collect();
    let alone = case.ask_quietly(quiet[0]).await;
    assert_eq!(alone, CALL);
    let (beside, busy) = case.beside_a_busy_caller(&quiet).await;
    assert!(beside <= 2 * alone, "the call in flight and the next one: {beside:?}");
    // The busy caller gets the rest of each call.
    let decided: usize = busy.iter().map(|tally| tally.decided).sum();
    let calls = QUIET_REQUESTS * 7;
    assert!(decided >= (calls - 2) * 128 - QUIET_REQUESTS * quiet.len() - IN_FLIGHT, "{decided}");
    assert_eq!(busy.iter().map(|tally| tally.refused).sum::<usize>(), 0);
    // The requests are decided in order: each waits behind all requests before it.
    let (least, most) = (busy.iter().map(|t| t.decided).min(), busy.iter().map(|t| t.decided).max());
    assert!(most <= least.map(|least| least + 1), "{least:?} to {most:?} times");
}

#[tokio::test(start_paused = true)]
async fn the_surplus_of_one_caller_is_not_refused_at_the_cost_of_another() {
    // The server decides 128 requests every four milliseconds. The busy caller's thousand requests are too many.
    let _server = server_with_calls_of(4 * CALL);
    let case = case(&options(), NoopObserver);
    let alone = case.ask_quietly(Caller(2)).await;
    let (beside, busy) = case.beside_a_busy_caller(&[Caller(2), Caller(3)]).await;
    assert!(busy.iter().any(|tally| tally.refused > 0), "more than is decided in time");
    assert!(beside <= 2 * alone, "{beside:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_takes_the_place_of_the_newest_request_of_one_with_many() {
    let _server = deciding(|_| Reply::Silence);
    let case = case(&RedisOptions { max_queue: 4, max_batch: 1, ..options() }, NoopObserver);
    let late = async {
        sleep(MS).await;
        let many = join_all((0..4).map(|_| case.decide_for(BUSY)));
        let other = async { (case.decide_for(Caller(2)).await, case.decide_for(BUSY).await) };
        tokio::join!(many, other)
    };
    let (_, (many, (other, _))) = tokio::join!(case.decide_for(BUSY), late);
    let late = Err(StoreError::Timeout);
    assert_eq!(many, [late.clone(), late.clone(), late.clone(), Err(StoreError::Overloaded)]);
    assert_eq!(other, late, "it waits, and this server does not answer");
}
