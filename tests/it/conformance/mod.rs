//! The recorded answers of envoyproxy/ratelimit (`tests/data/conformance/`), played against the service with counters
//! in memory; `redis::conformance` plays them with Redis. `differences` lists the cases that differ on purpose.

mod case;
mod differences;
mod errors;
mod observed;
mod play;
mod reference_settings;

use std::sync::Mutex;
use std::thread;

use case::Case;
use differences::DIFFERENCES;

/// Cases played at the same time. Most of the time of a case is the start of its process.
const AT_ONCE: usize = 4;

/// Where the counters are while the cases are played.
#[derive(Clone, Copy)]
pub enum Counters<'r> {
    Memory,
    /// In the Redis at this URL, each case with its own prefix of keys.
    Redis(&'r str),
}

/// Plays every case. Fails if a case that is not in the list of differences differs, or one that is in the list does
/// not.
pub fn play_all(counters: Counters<'_>) {
    let cases = case::all();
    assert!(cases.len() >= 148, "only {} cases found", cases.len());
    let waiting = Mutex::new(cases.iter());
    let problems = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no player panicked").next();
                    let Some(case) = next else { break };
                    if let Some(problem) = problem(case, counters) {
                        problems.lock().expect("no player panicked").push(problem);
                    }
                }
            });
        }
    });
    let mut problems = problems.into_inner().expect("no player panicked");
    problems.sort();
    assert!(problems.is_empty(), "{} of {} cases:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// What is wrong with a case: it differs, or it does not although the list says so.
fn problem(case: &Case, counters: Counters<'_>) -> Option<String> {
    let is_listed = DIFFERENCES.contains(&case.name.as_str());
    match (play::play(case, counters), is_listed) {
        (None, false) | (Some(_), true) => None,
        (Some(difference), false) => Some(format!("{}: {difference}", case.name)),
        (None, true) => Some(format!("{}: is listed as different, but it is the same", case.name)),
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    play_all(Counters::Memory);
}
