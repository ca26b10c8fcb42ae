//! The end of an outage.

use super::*;

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_of_any_kind_decisions_begin_within_a_second() {
    let server = deciding(Reply::granted);
    let case = case(&options(), NoopObserver);
    let faults: [fn(&[String]) -> Reply; 3] =
        [|_| Reply::Silence, |_| Reply::Close, |_| Reply::Error("LOADING Redis is loading the dataset")];
    for (number, fault) in faults.into_iter().enumerate() {
        server.handle(move |command| Some(fault(command)));
        server.set_refuses(number == 1);
        let began = Instant::now();
        while began.elapsed() < 60_000 * MS {
            case.decide().await.expect_err("an outage");
            sleep(7 * MS).await;
        }
        server.set_refuses(false);
        server.handle(script_calls(Reply::granted));
        let back = Instant::now();
        while case.decide().await.is_err() {
            assert!(back.elapsed() < 1_000 * MS, "fault {number}");
            sleep(MS).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_requests_fail_at_once_until_the_server_is_back() {
    let server = deciding(Reply::granted);
    server.set_refuses(true);
    let case = case(&options(), NoopObserver);
    let asked = Instant::now();
    let error = case.call(CallMode::Batched(None), 15 * MS).await.expect_err("there is no server");
    assert!(matches!(error, CallError::NotExecuted(_)), "{error:?}");
    assert!(matches!(StoreError::from(error), StoreError::Unreachable(_)));
    assert_eq!(asked.elapsed(), Duration::ZERO);
    server.set_refuses(false);
    sleep(75 * MS).await;
    case.decide().await.expect("an answer");
}

/// Without requests, an outage opens the breaker within seconds, but a single failed attempt to connect does not. The
/// server gets few attempts to connect.
#[tokio::test(start_paused = true)]
async fn an_idle_node_notices_an_outage_and_its_end() {
    let server = deciding(Reply::granted);
    let case = case(&options(), NoopObserver);
    case.decide().await.expect("an answer");
    let lose_connections = || {
        server.handle(|command| (command[0] == "PING").then_some(Reply::Close));
    };
    for _ in 0..10 {
        lose_connections();
        server.set_refuses(true);
        // One PING gets no answer, and one attempt to connect fails.
        let before = server.refused();
        while server.refused() == before {
            sleep(10 * MS).await;
        }
        server.set_refuses(false);
        server.handle(script_calls(Reply::granted));
        sleep(2_000 * MS).await;
        assert_eq!(case.node.breaker_state(), BreakerState::Closed, "it was once");
    }

    lose_connections();
    server.set_refuses(true);
    let (killed, before) = (Instant::now(), server.refused());
    while case.node.breaker_state() == BreakerState::Closed {
        assert!(killed.elapsed() < 5_000 * MS);
        sleep(10 * MS).await;
    }
    sleep(60_000 * MS).await;
    let attempts = server.refused() - before;
    assert!(attempts < 60 * 25, "{attempts} attempts to connect in a minute");
    server.set_refuses(false);
    server.handle(script_calls(Reply::granted));
    sleep(300 * MS).await;
    assert_eq!(case.node.breaker_state(), BreakerState::Closed);
}

/// The clock jumps over the arrival of the reply and over the deadline.
#[tokio::test(start_paused = true)]
async fn an_answer_that_arrived_while_the_worker_did_not_run_is_used() {
    let _server = deciding(|call| Reply::After(14 * MS, Box::new(Reply::granted(call))));
    let case = case(&options(), NoopObserver);
    case.decide().await.expect("the connection is open");
    let jump = async {
        sleep(MS).await;
        tokio::time::advance(20 * MS).await;
    };
    let (decided, ()) = tokio::join!(case.decide(), jump);
    decided.expect("an answer");
}
