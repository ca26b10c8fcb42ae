//! Variables that Kubernetes sets in every container for the services of its namespace.

/// Whether Kubernetes sets the variable for a service, such as `RATELIMITD_PORT=tcp://10.0.0.1:8081`,
/// `RATELIMITD_SERVICE_HOST` and `RATELIMITD_PORT_8081_TCP_ADDR`; a service named `grpc` sets `GRPC_PORT`.
pub(crate) fn is_service_link(name: &str, value: &str) -> bool {
    let has_parts = ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|part| name.contains(part));
    let (_, after_port) = name.rsplit_once("_PORT_").unwrap_or_default();
    let is_of_port = after_port.starts_with(|first: char| first.is_ascii_digit());
    has_parts || is_of_port || (name.ends_with("_PORT") && value.contains("://"))
}
