//! Resolves one host. Every connection resolves the name again, because its addresses can change; while DNS fails or is
//! slow, the last known addresses are used.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

/// How long a connection waits for a lookup if earlier addresses are known. A slower lookup continues, for the next
/// connection.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_millis(40);

#[derive(Debug, Default)]
pub(super) struct CachedResolver {
    /// Held during a lookup: other connections wait for the same one, so that a hanging DNS server is asked once.
    lookup_lock: Arc<AsyncMutex<()>>,
    cache: Arc<Mutex<CachedAddresses>>,
}

#[derive(Debug, Default)]
struct CachedAddresses {
    addresses: Vec<SocketAddr>,
    /// Error of the last lookup.
    failure: String,
}

impl CachedResolver {
    /// Returns at least one address, in the order of the DNS answer. The first lookup can take `first`.
    ///
    /// # Errors
    /// If the lookup fails or takes too long, and none succeeded earlier.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
        first: Duration,
    ) -> io::Result<Vec<SocketAddr>> {
        let limit = if self.cache.lock().addresses.is_empty() { first } else { LOOKUP_TIMEOUT };
        let looked_up = timeout(limit, self.look_up(host, port)).await;
        let cache = self.cache.lock();
        match looked_up {
            _ if !cache.addresses.is_empty() => Ok(cache.addresses.clone()),
            Ok(()) => Err(io::Error::new(io::ErrorKind::NotFound, cache.failure.clone())),
            Err(_elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, "the DNS lookup took too long")),
        }
    }

    async fn look_up(&self, host: &str, port: u16) {
        let Ok(permit) = Arc::clone(&self.lookup_lock).try_lock_owned() else {
            drop(self.lookup_lock.lock().await);
            return;
        };
        let (cache, host) = (Arc::clone(&self.cache), host.to_owned());
        #[expect(clippy::disallowed_methods, reason = "the timeout of the system's resolver ends it")]
        let lookup = tokio::spawn(async move {
            let result = lookup_host((host, port)).await;
            cache.lock().update(result.map(Iterator::collect));
            drop(permit);
        });
        if let Err(error) = lookup.await {
            self.cache.lock().failure = error.to_string();
        }
    }
}

impl CachedAddresses {
    fn update(&mut self, result: io::Result<Vec<SocketAddr>>) {
        match result {
            Ok(addresses) if addresses.is_empty() => "the name has no address".clone_into(&mut self.failure),
            Ok(addresses) => self.addresses = addresses,
            Err(error) => self.failure = error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6761: no DNS server resolves it.
    const UNKNOWN: &str = "redis.invalid";

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[tokio::test]
    async fn an_ip_address_resolves_to_itself() {
        let resolver = CachedResolver::default();
        let lookup = || resolver.addresses("127.0.0.1", 6_379, LOOKUP_TIMEOUT);
        let (first, second) = tokio::join!(lookup(), lookup());
        assert_eq!(first.expect("an address"), [local(6_379)]);
        assert_eq!(second.expect("from the same lookup"), [local(6_379)]);
    }

    #[tokio::test]
    async fn a_failed_lookup_returns_the_last_addresses() {
        let resolver = CachedResolver::default();
        resolver.addresses(UNKNOWN, 1, LOOKUP_TIMEOUT).await.expect_err("the name is unknown");
        resolver.cache.lock().addresses = vec![local(1)];
        assert_eq!(
            resolver.addresses(UNKNOWN, 1, LOOKUP_TIMEOUT).await.expect("the last address"),
            [local(1)]
        );
    }

    #[tokio::test]
    async fn a_lookup_that_hangs_is_not_repeated() {
        let resolver = CachedResolver::default();
        let hung = Arc::clone(&resolver.lookup_lock).lock_owned().await;
        let error =
            resolver.addresses("127.0.0.1", 1, LOOKUP_TIMEOUT).await.expect_err("no lookup has succeeded");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        resolver.cache.lock().addresses = vec![local(2)];
        assert_eq!(
            resolver.addresses("127.0.0.1", 1, LOOKUP_TIMEOUT).await.expect("the last address"),
            [local(2)]
        );
        drop(hung);
        assert_eq!(resolver.addresses("127.0.0.1", 1, LOOKUP_TIMEOUT).await.expect("an address"), [local(1)]);
    }
}
