//! The implementation of the cryptography.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// An explicit provider: with two providers among the dependencies, the process-wide default panics.
pub(super) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
