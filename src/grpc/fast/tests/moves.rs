//! Connections that move between workers during calls.

use std::net::SocketAddr;

use futures_util::future::join_all;

use super::callers::{limited_request, rules_of_one_domain};
use super::held_calls::SlowStore;
use super::*;
use crate::grpc::acceptor::Acceptor;
use crate::grpc::fast::balance;
use crate::grpc::worker::{BoxError, GrpcService, WorkerContext, WorkerPool};
use crate::grpc::worker_link::GiveAway;
use crate::net::PortListener;

const CONNECTIONS: usize = 8;
const CALLS_AT_ONCE: usize = 20;
const MOVES: usize = 200;

fn context<S>(handler: Handler<S>) -> Result<WorkerContext<S>, BoxError> {
    Ok(WorkerContext {
        handler,
        close: Box::pin(std::future::ready(())),
        died: Box::pin(std::future::pending()),
    })
}

/// A service of two workers, and its port.
async fn service<S>(
    decisions_at_once: usize,
    metrics: &Metrics,
    make_context: impl Fn() -> Result<WorkerContext<S>, BoxError> + Send + Sync + 'static,
) -> (Arc<GrpcService<S>>, PortListener, SocketAddr) {
    let bounds = ConnectionBounds { total: CONNECTIONS, per_address: CONNECTIONS };
    let service = GrpcService {
        options: GrpcOptions {
            workers: NonZeroUsize::new(2).expect("not 0"),
            decisions_at_once: NonZeroUsize::new(decisions_at_once).expect("not 0"),
            ..options()
        },
        readiness: Readiness::not_ready(&[]),
        admission: Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc)),
        tls: None,
        unfinished: UnfinishedBytes::new(UNFINISHED_BYTES),
        make_context: Box::new(make_context),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (Arc::new(service), PortListener::of_tcp(listener), address)
}

async fn connect_all(address: SocketAddr, connections: usize) -> Vec<SendRequest<Bytes>> {
    join_all((0..connections).map(|_| async move {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        spawn(async { drop(connection.await) });
        client
    }))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_answered_while_their_connections_move() {
    let metrics = Metrics::new(800_000).expect("different names");
    let make_context = {
        let metrics = metrics.clone();
        move || {
            let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
            context(handler(RuleSet::empty(), store, &metrics))
        }
    };
    let (service, listener, address) = service(DECISIONS_AT_ONCE, &metrics, make_context).await;
    let (pool, workers) = WorkerPool::start(&service).expect("threads");
    let mut acceptor = Acceptor::new(Arc::clone(&workers));
    let accept = acceptor.run(&listener, &service.admission, None);
    let test = async {
        let clients = connect_all(address, CONNECTIONS).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let callers = join_all(clients.iter().map(|client| async {
            let mut answered = 0;
            while !*stopped.borrow() {
                let calls = (0..CALLS_AT_ONCE)
                    .map(|_| async { open_call(client, PATH, valid_request(), true).await.status().await });
                for status in join_all(calls).await {
                    assert_eq!(status, "0");
                    answered += 1;
                }
            }
            answered
        }));
        let moves = async {
            for number in 0..MOVES {
                let (from, to) = (number % 2, 1 - number % 2);
                // A connection that the worker has not started to serve follows a later order.
                while workers.links[to].open_connections() < CONNECTIONS {
                    let order = GiveAway { to, connections: CONNECTIONS };
                    workers.links[from].orders.send(order).await.expect("the worker runs");
                    tokio::task::yield_now().await;
                }
                assert_eq!(workers.links[from].open_connections(), 0);
            }
            stop.send(true).expect("callers");
        };
        let (answered, ()) = tokio::join!(callers, moves);
        answered
    };
    let answered = tokio::select! {
        answered = test => answered,
        () = accept => unreachable!("the acceptor does not end"),
    };
    assert!(answered.iter().all(|&calls| calls > 0), "{answered:?}");
    let failed = value(&metrics, "ratelimitd_request_errors_total{kind=\"invalid\",transport=\"grpc\"}");
    assert_eq!(failed, 0);
    drop(listener);
    pool.finish().await.expect("the workers end");
}

/// The workers are idle while they wait for the store: only held calls reveal the burst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_holds_calls_shares_its_connections_at_once() {
    let metrics = Metrics::new(800_000).expect("different names");
    let store = SlowStore::new();
    let make_context = {
        let (metrics, store) = (metrics.clone(), store.clone());
        move || context(handler(rules_of_one_domain(), store.clone(), &metrics))
    };
    let (service, listener, address) = service(1, &metrics, make_context).await;
    let (pool, workers) = WorkerPool::start(&service).expect("threads");
    let mut acceptor = Acceptor::new(Arc::clone(&workers));
    let test = async {
        let clients = connect_all(address, 2).await;
        let connections = || [0, 1].map(|worker| workers.links[worker].open_connections());
        while connections() != [2, 0] {
            tokio::task::yield_now().await;
        }
        // On a busy machine two workers may serve for a while before the first call, so that it reveals nothing.
        let mut calls = Vec::new();
        while connections() != [1, 1] {
            calls.push(open_call(&clients[calls.len() % 2], PATH, limited_request(), true).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.answer(calls.len());
    };
    tokio::select! {
        () = test => {}
        () = acceptor.run(&listener, &service.admission, None) => unreachable!("the acceptor does not end"),
        () = balance(Arc::clone(&workers)) => unreachable!("the balancer does not end"),
    }
    drop(listener);
    pool.finish().await.expect("the workers end");
}
