use std::collections::HashSet;

use super::*;
use crate::redis::options::RedisOptions;
use crate::redis::testing::{FakeServer, Reply};

const MS: Duration = Duration::from_millis(1);

fn server(handler: impl Fn(&[String]) -> Option<Reply> + Send + Sync + 'static) -> FakeServer {
    FakeServer::listen("redis.test", 6_379, handler)
}

fn pool(size: u32) -> ConnectionPool {
    pool_with(RedisOptions::default().timeout, size)
}

fn pool_with(timeout: Duration, size: u32) -> ConnectionPool {
    let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
    let target = Target::new(&RedisOptions { urls, timeout, ..RedisOptions::default() });
    connection_pool(target.expect("good options"), size, Arc::default())
}

/// Checks a connection out, sends `ECHO` on it, and returns it to the pool.
async fn echo(pool: &ConnectionPool) -> Result<(), StoreError> {
    let mut pooled = checkout(pool, Instant::now() + 60_000 * MS).await?;
    let connection = pooled.as_mut().map_err(|failure| failure.cause.clone())?;
    let () = connection.query(&redis::cmd("ECHO"), Instant::now() + 15 * MS).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_reused_and_its_scripts_are_loaded_once() {
    let server = server(|_| None);
    let pool = pool(4);
    for _ in 0..3 {
        echo(&pool).await.expect("a reply");
    }
    let loaded: HashSet<Vec<String>> = server.commands("SCRIPT").into_iter().collect();
    assert_eq!((server.connections(), server.commands("SCRIPT").len()), (1, loaded.len()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_repeated_once_after_a_pause() {
    let server = server(|_| None);
    server.set_refuses(true);
    let pool = pool(1);
    assert!(matches!(echo(&pool).await, Err(StoreError::Unreachable(_))));
    server.set_refuses(false);
    // A timer can be late by a millisecond.
    tokio::time::sleep(RETRY_PAUSE / 2 - 2 * MS).await;
    assert!(matches!(echo(&pool).await, Err(StoreError::Unreachable(_))), "within the pause");
    // After the longest pause, one and a half times as long.
    tokio::time::sleep(RETRY_PAUSE + 2 * MS).await;
    echo(&pool).await.expect("a reply");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_hangs_fails_after_the_timeout() {
    let _server = server(|_| Some(Reply::Silence));
    let (pool, started) = (pool(1), Instant::now());
    assert_eq!(echo(&pool).await, Err(StoreError::Timeout));
    assert_eq!(started.elapsed(), CONNECT_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn each_round_trip_of_a_new_connection_has_the_timeout_of_a_decision() {
    let slow = |command: &[String]| match command[0].as_str() {
        "PING" => Some(Reply::After(400 * MS, Box::new(Reply::Status("PONG")))),
        // The scripts are sent together.
        "SCRIPT" if command[2].contains("a batch of requests") => {
            Some(Reply::After(400 * MS, Box::new(Reply::Bulk("hash".to_owned()))))
        }
        _ => None,
    };
    let _server = server(slow);
    let started = Instant::now();
    assert_eq!(echo(&pool_with(15 * MS, 1)).await, Err(StoreError::Timeout));
    assert_eq!(started.elapsed(), CONNECT_TIMEOUT);
    echo(&pool_with(410 * MS, 1)).await.expect("a reply");
}

#[tokio::test(start_paused = true)]
async fn broken_connections_are_replaced_and_others_kept() {
    let server = server(|_| None);
    let pool = pool(1);
    echo(&pool).await.expect("a reply");
    for (reply, connections) in [
        (Reply::Error("ERR an error is a reply"), 1),
        (Reply::After(20 * MS, Box::new(Reply::Nil)), 2),
        (Reply::Close, 3),
    ] {
        let failing = reply.clone();
        server.handle(move |command| (command[0] == "ECHO").then(|| failing.clone()));
        echo(&pool).await.expect_err("no reply, or an error");
        server.handle(|_| None);
        echo(&pool).await.expect("a reply");
        assert_eq!(server.connections(), connections, "after {reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_a_replica_is_replaced_after_the_pause_of_a_failed_attempt() {
    let server = server(|command| (command[0] == "ECHO").then_some(Reply::Error("READONLY a replica")));
    let pool = pool(1);
    let readonly = Err(StoreError::ReadOnly("READONLY a replica".to_owned()));
    assert_eq!(echo(&pool).await, readonly);
    server.handle(|_| None);
    assert_eq!(echo(&pool).await, readonly, "the failure stands for the pause");
    assert_eq!(server.connections(), 1);
    tokio::time::sleep(2 * RETRY_PAUSE).await;
    echo(&pool).await.expect("a reply");
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_pinged_before_use() {
    let server = server(|_| None);
    let pool = pool(1);
    let is_alive = async || {
        let mut pooled = checkout(&pool, Instant::now() + MS).await.expect("a connection");
        pooled.as_mut().expect("it is open").is_alive(5 * MS).await
    };
    assert!(is_alive().await);
    let pings = server.commands("PING").len();
    tokio::time::sleep(CHECK_AFTER_IDLE - MS).await;
    assert!(is_alive().await);
    assert_eq!(server.commands("PING").len(), pings, "used a short time ago");
    tokio::time::sleep(2 * MS).await;
    assert!(is_alive().await);
    assert_eq!(server.commands("PING").len(), pings + 1);
    server.handle(|_| Some(Reply::Silence));
    tokio::time::sleep(CHECK_AFTER_IDLE).await;
    assert!(!is_alive().await, "a dead connection");
}

#[tokio::test(start_paused = true)]
async fn an_unauthenticated_client_sees_the_error_of_the_server() {
    let _server = server(|_| Some(Reply::Error("NOAUTH Authentication required.")));
    let expected = StoreError::Forbidden("NOAUTH Authentication required.".to_owned());
    assert_eq!(echo(&pool(1)).await, Err(expected));
}
