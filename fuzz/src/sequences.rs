//! A sequence of requests at given times, on counters in memory and through the Lua script in a real Redis.
//!
//! Holds: both stores give equal answers, in every number. The sequences are those of the property tests; here the
//! bytes choose instead of a random generator, so that a changed byte changes one choice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use engine::algorithm::Kernel;
use engine::{Charges, Charging, Outcomes, Pacing, Role};
use simulate::replay::{MemoryReplay, RedisReplay, ReplayStore};

use super::redis_server::RedisServer;
use observable::observable;
use sequence::{
    Amount, Grants, KINDS, LONGEST_US, NumberChange, RandomCharge, RandomRequest, Sequence, TimeStep,
    kernel_of,
};

#[path = "../../tests/it/redis/lua_twin/observable.rs"]
mod observable;
#[path = "../../tests/it/redis/lua_twin/sequence.rs"]
mod sequence;

/// A minute boundary of recent time, so that numbers are as large as in production.
const START_US: u64 = 1_700_000_040_000_000;
/// Cases after which Redis is emptied.
const CASES_KEPT: u64 = 256;
const COUNTERS: usize = 4;
const MOST_BATCHES: usize = 60;

struct Redis {
    client: RedisReplay,
    _server: RedisServer,
}

fn redis() -> &'static Mutex<Redis> {
    static REDIS: OnceLock<Mutex<Redis>> = OnceLock::new();
    REDIS.get_or_init(|| {
        let server = RedisServer::start();
        Mutex::new(Redis { client: server.connect(), _server: server })
    })
}

/// Decides the sequence that `data` describes.
pub fn run(data: &[u8]) {
    static CASES: AtomicU64 = AtomicU64::new(0);
    let sequence = Choices(data).sequence();
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    let (requests, expected) = decide_in_memory(&sequence, case);
    let mut redis = redis().lock().unwrap_or_else(PoisonError::into_inner);
    let timed: Vec<_> = requests.iter().map(|(now_us, charges)| (*now_us, charges)).collect();
    let decided = redis.client.decide(&timed).expect("Redis decides");
    assert_eq!(decided.len(), expected.len());
    for (((now_us, charges), expected), decided) in requests.iter().zip(&expected).zip(&decided) {
        let (decided, expected) = (observable(charges, decided), observable(charges, expected));
        assert_eq!(decided, expected, "Redis, memory: at {now_us} for {charges:?}");
    }
    if case % CASES_KEPT == CASES_KEPT - 1 {
        redis.client.remove_keys().expect("Redis answers");
    }
}

/// The requests with their times, and the answers of the memory store.
fn decide_in_memory(sequence: &Sequence, case: u64) -> (Vec<(u64, Charges)>, Vec<Outcomes>) {
    let (mut store, mut now_us) = (MemoryReplay::new(), START_US);
    let (mut requests, mut outcomes) = (Vec::new(), Vec::<Outcomes>::new());
    let mut grants = Grants::default();
    for (index, (time_step, batch)) in sequence.batches.iter().enumerate() {
        let last = outcomes.last().cloned().unwrap_or_default();
        now_us = sequence.time_after(now_us, time_step, &last);
        for request in batch {
            let charges = sequence.charges(request, case, index, &grants);
            let decided = store.decide(&[(now_us, &charges)]).expect("memory decides").remove(0);
            grants.add(&charges, &decided);
            outcomes.push(decided);
            requests.push((now_us, charges));
        }
    }
    (requests, outcomes)
}

/// Bytes that have not chosen anything yet. After the last one all choices are the first.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number of up to 8 bytes, after a byte with its length.
    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        for place in 0..self.byte() % 9 {
            bytes[usize::from(place)] = self.byte();
        }
        u64::from_le_bytes(bytes)
    }

    fn share(&mut self) -> f64 {
        f64::from(self.byte()) / 200.0
    }

    fn sequence(&mut self) -> Sequence {
        let kernels = (0..COUNTERS).map(|_| self.kernel()).collect();
        let mut batches = Vec::new();
        while !self.0.is_empty() && batches.len() < MOST_BATCHES {
            let time_step = self.time_step();
            let requests = 1 + self.byte() % 3;
            batches.push((time_step, (0..requests).map(|_| self.request()).collect()));
        }
        let change = |batch, counter, factor| NumberChange { batch, counter, factor };
        Sequence { kernels, changes: vec![change(6, 0, 2.0), change(12, 1, 0.5)], batches }
    }

    fn kernel(&mut self) -> Kernel {
        let kind = self.byte();
        let pacing = if kind & 0x80 == 0 { Pacing::Meter } else { Pacing::Queue };
        let most = match kind % KINDS {
            0 => 1 << 52,
            1 => 1 << 46,
            _ => u64::from(u32::MAX),
        };
        let limit = |number: u64| 1 + number % most;
        let numbers = (limit(self.number()), limit(self.number()), 1 + self.number() % LONGEST_US);
        kernel_of(kind % KINDS, numbers, pacing)
    }

    fn time_step(&mut self) -> TimeStep {
        match self.byte() % 6 {
            0 => TimeStep::Us(u64::from(self.byte())),
            1 => TimeStep::Periods(4.0 * self.share()),
            2 => TimeStep::Back(u64::from(self.byte())),
            3 => TimeStep::Us(self.number() % (2 * LONGEST_US)),
            _ => TimeStep::Due(i64::from(self.byte() % 3) - 1),
        }
    }

    /// One to four charges. A quarter of the requests is known to be denied. A settle comes alone.
    fn request(&mut self) -> RandomRequest {
        let bits = self.byte();
        let mut charges: Vec<_> = (0..=bits % 4).map(|_| self.charge()).collect();
        if charges.iter().any(|charge: &RandomCharge| charge.role == Role::Settle) {
            charges.truncate(1);
        }
        (charges, bits & 0xc0 == 0xc0)
    }

    /// Counter, charging and role are in the bits of one byte. An undo is a settle.
    fn charge(&mut self) -> RandomCharge {
        let bits = self.byte();
        let charge = RandomCharge {
            counter: usize::from(bits) % COUNTERS,
            charging: if bits & 0x0c == 0 { Charging::Postpaid } else { Charging::Prepaid },
            role: match bits >> 4 {
                0..7 => Role::Enforce,
                7 => Role::IdleQuota,
                8 => Role::Shadow,
                9 => Role::Announced,
                10 => Role::Booked,
                11 => Role::Settle,
                group => Role::Quota(u16::from(group) % 3),
            },
            amount: self.amount(),
        };
        match charge.amount {
            Amount::Undo { .. } => {
                RandomCharge { charging: Charging::Postpaid, role: Role::Settle, ..charge }
            }
            _ => charge,
        }
    }

    fn amount(&mut self) -> Amount {
        let byte = self.byte();
        match byte % 9 {
            0..3 => Amount::Few(1 + u64::from(self.byte() % 4)),
            3 => Amount::Take(self.share()),
            4 => Amount::Refund(self.share()),
            5 => Amount::Few(self.number()),
            6 => Amount::Saturated,
            7 => Amount::Nothing,
            _ if byte > 220 => Amount::Undo { back: usize::from(self.byte() % 4), share: self.share() },
            _ if byte > 180 => Amount::DebtPeek,
            _ => Amount::Peek,
        }
    }
}
