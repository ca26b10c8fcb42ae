//! The gRPC health service: the same as `/readyz`, in its own words.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::transport::Readiness;

/// The names that callers ask for: the whole server, and the reference service's.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// Keeps `reporter` at what `readiness` says. Never returns.
pub(super) async fn follow(readiness: &Readiness, reporter: &HealthReporter) {
    let mut changes = readiness.subscribe();
    loop {
        let is_ready = changes.borrow_and_update().is_empty();
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            reporter.set_service_status(name, status).await;
        }
        if changes.changed().await.is_err() {
            // Nothing can change any more.
            std::future::pending::<()>().await;
        }
    }
}
