//! The gRPC health service: reports what `/readyz` reports.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::transport::Readiness;

/// The service names that callers ask for: the whole server, and the name that envoyproxy/ratelimit uses.
const SERVICE_NAMES: [&str; 2] = ["", "ratelimit"];

/// Reports every change of `readiness`. Never returns.
pub(super) async fn follow_readiness(readiness: &Readiness, reporter: &HealthReporter) {
    let mut changes = readiness.subscribe();
    loop {
        let is_ready = changes.borrow_and_update().is_empty();
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in SERVICE_NAMES {
            reporter.set_service_status(name, status).await;
        }
        if changes.changed().await.is_err() {
            // The sender is gone, so readiness cannot change any more.
            std::future::pending::<()>().await;
        }
    }
}
