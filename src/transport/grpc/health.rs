//! The gRPC health service. It says what the process says of itself; a store that is away does not take it out of
//! service, since rules say what to answer then.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::transport::{Obstacle, Readiness};

/// The names that callers ask for: the whole server, and the reference service's.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// Keeps `reporter` at what `readiness` says. Never returns.
pub(super) async fn follow(readiness: &Readiness, reporter: &HealthReporter) {
    let mut changes = readiness.subscribe();
    loop {
        let obstacles = *changes.borrow_and_update();
        let is_out = obstacles.contains(Obstacle::Starting) || obstacles.contains(Obstacle::Draining);
        let status = if is_out { ServingStatus::NotServing } else { ServingStatus::Serving };
        for name in NAMES {
            reporter.set_service_status(name, status).await;
        }
        if changes.changed().await.is_err() {
            // Nothing can change any more.
            std::future::pending::<()>().await;
        }
    }
}
