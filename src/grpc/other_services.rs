//! The services other than the decision, served by tonic: health, which reports what `/readyz` reports, and reflection
//! for tools without a copy of the contract.

use futures_util::future::{pending, ready};
use futures_util::stream::{BoxStream, Stream, StreamExt as _, once, unfold};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::pb::FILE_DESCRIPTOR_SET;
use crate::decide::Readiness;
use crate::telemetry::metrics::RequestMeter;

/// Maximum request for health or reflection.
const MAX_OTHER_MESSAGE_BYTES: usize = 4 * 1024;

/// Router of these services. A health watch ends when `stop` is cancelled, after a last status.
pub(super) fn other_services(
    readiness: Readiness,
    meter: RequestMeter,
    stop: CancellationToken,
) -> Result<Routes, tonic_reflection::server::Error> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(HealthService { readiness, meter, stop });
    let health = health.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES);
    let v1 = reflection().build_v1()?;
    let v1alpha = reflection().build_v1alpha()?;
    let mut routes = Routes::builder();
    routes
        .add_service(health)
        .add_service(v1.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES))
        .add_service(v1alpha.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES));
    // Saves each connection the `prepare`.
    Ok(routes.routes().prepare())
}

/// Service names that callers use: the whole server, and the name in envoyproxy/ratelimit.
const SERVICE_NAMES: [&str; 2] = ["", "ratelimit"];

/// Health. Only the service names above exist.
#[derive(Debug)]
struct HealthService {
    readiness: Readiness,
    meter: RequestMeter,
    stop: CancellationToken,
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let _timer = self.meter.start_health_check();
        if is_known(request.get_ref()) {
            Ok(Response::new(response(status(self.readiness.is_ready()))))
        } else {
            Err(Status::not_found("the server has no service of this name"))
        }
    }

    /// Sends the status, and every change. A stream for an unknown name also stays open, as the protocol requires; on
    /// an error clients would retry forever.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let statuses = if is_known(request.get_ref()) {
            statuses(&self.readiness).boxed()
        } else {
            once(ready(ServingStatus::ServiceUnknown)).chain(once(pending())).boxed()
        };
        let until_stop = unfold(Some((statuses, self.stop.clone())), async |open| {
            let (mut statuses, stop) = open?;
            tokio::select! {
                // A status that is pending at shutdown is still sent.
                biased;
                Some(status) = statuses.next() => Some((Ok(response(status)), Some((statuses, stop)))),
                () = stop.cancelled() => {
                    Some((Err(Status::unavailable("the server closes this connection")), None))
                }
            }
        });
        Ok(Response::new(until_stop.boxed()))
    }
}

fn is_known(request: &HealthCheckRequest) -> bool {
    SERVICE_NAMES.contains(&request.service.as_str())
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

fn status(is_ready: bool) -> ServingStatus {
    if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// The current status and all later ones. Does not end.
fn statuses(readiness: &Readiness) -> impl Stream<Item = ServingStatus> + Send + 'static {
    unfold((readiness.subscribe(), None), async |(mut changes, last)| {
        loop {
            let current = status(changes.borrow_and_update().is_empty());
            if last != Some(current) {
                return Some((current, (changes, Some(current))));
            }
            if changes.changed().await.is_err() {
                // The sender is gone, so readiness cannot change.
                pending::<()>().await;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::decide::NotReadyReason;
    use crate::telemetry::metrics::{Metrics, Transport};

    fn health(readiness: &Readiness) -> HealthService {
        let metrics = Metrics::new(800_000).expect("different names");
        let meter = metrics.requests(Transport::Grpc);
        HealthService { readiness: readiness.clone(), meter, stop: CancellationToken::new() }
    }

    fn asked(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    #[tokio::test]
    async fn a_watch_sends_each_change_once() {
        let readiness = Readiness::not_ready(&[NotReadyReason::Starting]);
        let health = health(&readiness);
        let mut watch = health.watch(asked("ratelimit")).await.expect("a stream").into_inner();
        let mut next =
            || watch.next().now_or_never().map(|sent| sent.expect("no end").expect("no error").status());
        assert_eq!((next(), next()), (Some(ServingStatus::NotServing), None));
        // A second reason does not change the status.
        readiness.set(NotReadyReason::Draining);
        assert_eq!(next(), None);
        readiness.clear(NotReadyReason::Starting);
        readiness.clear(NotReadyReason::Draining);
        assert_eq!((next(), next()), (Some(ServingStatus::Serving), None));
    }

    #[tokio::test]
    async fn a_watch_of_an_unknown_service_stays_open() {
        let readiness = Readiness::not_ready(&[]);
        let health = health(&readiness);
        let mut watch = health.watch(asked("another")).await.expect("a stream").into_inner();
        let first = watch.next().await.expect("a message").expect("no error");
        assert_eq!(first.status(), ServingStatus::ServiceUnknown);
        readiness.set(NotReadyReason::Draining);
        assert!(watch.next().now_or_never().is_none(), "neither a message nor the end");
        let unknown = health.check(asked("another")).await.expect_err("a single answer is an error");
        assert_eq!(unknown.code(), tonic::Code::NotFound);
    }
}
