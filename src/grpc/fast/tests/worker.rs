//! Workers that end by themselves, and workers that are stopped.

use std::future::{pending, ready};

use super::*;
use crate::grpc::fast::open_calls::max_open_calls;
use crate::grpc::worker::{BoxError, GrpcService, WorkerContext, serve};
use crate::net::PortListener;

type Context = WorkerContext<MemoryStore<SystemClock>>;

fn service(make_context: fn() -> Result<Context, BoxError>) -> GrpcService<MemoryStore<SystemClock>> {
    let options = GrpcOptions {
        workers: NonZeroUsize::MIN,
        decisions_at_once: NonZeroUsize::MIN,
        hold_at_most: Duration::ZERO,
        fast: true,
        max_connection_age: None,
        finish_within: Duration::ZERO,
    };
    let metrics = Metrics::new(800_000).expect("metrics");
    let bounds = ConnectionBounds { total: 1, per_address: 1 };
    GrpcService {
        options,
        readiness: Readiness::not_ready(&[]),
        admission: Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc)),
        tls: None,
        unfinished: UnfinishedBytes::new(0),
        make_context: Box::new(make_context),
    }
}

async fn error_of(make_context: fn() -> Result<Context, BoxError>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let served = serve(PortListener::of_tcp(listener), service(make_context), CancellationToken::new()).await;
    served.expect_err("the server was not told to stop").to_string()
}

fn memory_handler() -> Handler<MemoryStore<SystemClock>> {
    let metrics = Metrics::new(800_000).expect("metrics");
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    handler(RuleSet::empty(), store, &metrics)
}

#[tokio::test]
async fn a_worker_that_cannot_start_ends_the_service_with_the_reason() {
    let reason = error_of(|| Err("no store of paper".into())).await;
    assert_eq!(reason, "worker 0 ended: cannot set up its store: no store of paper");
}

#[tokio::test]
async fn a_worker_that_panics_ends_the_service() {
    let reason = error_of(|| panic!("as if by mistake")).await;
    assert_eq!(reason, "worker 0 ended: it panicked");
}

#[tokio::test]
async fn a_store_whose_task_dies_ends_the_service_with_the_reason() {
    let reason = error_of(|| {
        let died = Box::pin(ready(BoxError::from("a batcher panicked")));
        Ok(WorkerContext { handler: memory_handler(), close: Box::pin(ready(())), died })
    });
    assert_eq!(reason.await, "worker 0 ended: its store task died: a batcher panicked");
}

#[tokio::test]
async fn a_service_whose_store_lives_ends_when_it_is_stopped() {
    let make_context = || {
        let (close, died) = (Box::pin(ready(())), Box::pin(pending()));
        Ok(WorkerContext { handler: memory_handler(), close, died })
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let stop = CancellationToken::new();
    stop.cancel();
    serve(PortListener::of_tcp(listener), service(make_context), stop)
        .await
        .expect("no worker ended by itself");
}

#[test]
fn the_workers_share_the_open_calls_of_the_process() {
    // (workers, open calls per worker)
    for (workers, open) in [(1, 10_000), (2, 10_000), (4, 10_000), (8, 5_000), (16, 2_500), (64, 2_048)] {
        assert_eq!(max_open_calls(NonZeroUsize::new(workers).expect("not 0")), open, "{workers} workers");
    }
}
