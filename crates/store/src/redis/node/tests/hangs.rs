//! A server that hangs under load, briefly or for good: when does the breaker open?

use tokio::task::JoinSet;

use super::*;

const CONNECTIONS: [u32; 5] = [1, 2, 4, 8, 16];
/// Duration of a stall: just longer than the timeout of 15 ms.
const STALL: Duration = Duration::from_millis(22);

/// Sends 3,000 requests a second to a node whose server then hangs for this long. Returns how many requests fail, and
/// how long after the hang began the breaker opens.
async fn hang(connections: u32, time: Duration) -> (usize, Option<Duration>) {
    let begins = Instant::now() + 100 * MS;
    let _server = server(move |command| {
        let left =
            if Instant::now() < begins { Duration::ZERO } else { time.saturating_sub(begins.elapsed()) };
        match command[0].as_str() {
            "EVALSHA" => Some(Reply::After(left + MS, Box::new(Reply::granted(command)))),
            _ if left.is_zero() => None,
            _ => Some(Reply::After(left, Box::new(Reply::Status("PONG")))),
        }
    });
    let case = Arc::new(case(&RedisOptions { connections, ..options() }, NoopObserver));
    let (mut asked, mut opened) = (JoinSet::new(), None);
    while begins.elapsed() < 200 * MS {
        for _ in 0..3 {
            let case = Arc::clone(&case);
            asked.spawn(async move { case.decide().await.is_err() });
        }
        sleep(MS).await;
        if opened.is_none() && case.node.breaker_state() != BreakerState::Closed {
            opened = Some(begins.elapsed());
        }
    }
    let failed = asked.join_all().await.into_iter().filter(|has_failed| *has_failed).count();
    (failed, opened)
}

#[tokio::test(start_paused = true)]
async fn a_stall_just_longer_than_the_timeout_does_not_open_the_breaker() {
    for connections in CONNECTIONS {
        let (failed, opened) = hang(connections, STALL).await;
        // The requests of the first 8 ms of the stall are late.
        assert!(failed <= 27 && opened.is_none(), "{connections} connections: {failed} failed, {opened:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_opens_the_breaker_after_four_timeouts() {
    for connections in CONNECTIONS {
        let (_, opened) = hang(connections, Duration::from_secs(60)).await;
        // Two calls of each timeout count: after 15 ms, then 45 ms, when the connections have been given up, and 60 ms.
        let most = if connections == 1 { 91 } else { 61 } * MS;
        assert!(opened.is_some_and(|after| after <= most), "{connections} connections: {opened:?}");
    }
}
