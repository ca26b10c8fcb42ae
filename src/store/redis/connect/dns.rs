//! Where a name leads. It is looked up for every connection, because it may lead elsewhere by then; while the name
//! service is away or slow, the addresses that it gave last are as good as any.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

/// What is waited for; a lookup that takes longer goes on, for the next connection.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_millis(40);

/// The addresses of one name.
#[derive(Debug, Default)]
pub(super) struct CachedResolver {
    /// Held while somebody looks: all others wait for the same, or a name service that hangs would be asked ever more.
    turn: Arc<AsyncMutex<()>>,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// Why the last lookup found nothing.
    failure: String,
}

impl CachedResolver {
    /// At least one address, in the order in which they are to be tried.
    pub(super) async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let looked = timeout(LOOKUP_TIMEOUT, self.look_up(host, port)).await;
        let known = self.known.lock();
        match looked {
            _ if !known.addresses.is_empty() => Ok(known.addresses.clone()),
            Ok(()) => Err(io::Error::new(io::ErrorKind::NotFound, known.failure.clone())),
            Err(_elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, "the name was not found in time")),
        }
    }

    async fn look_up(&self, host: &str, port: u16) {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            drop(self.turn.lock().await);
            return;
        };
        let (known, host) = (Arc::clone(&self.known), host.to_owned());
        // It ends by itself: the resolver of the system gives up at some time.
        let looking = tokio::spawn(async move {
            let found = lookup_host((host, port)).await;
            known.lock().learn(found.map(Iterator::collect));
            drop(turn);
        });
        if let Err(died) = looking.await {
            self.known.lock().failure = died.to_string();
        }
    }
}

impl Known {
    fn learn(&mut self, found: io::Result<Vec<SocketAddr>>) {
        match found {
            Ok(addresses) if addresses.is_empty() => "the name has no address".clone_into(&mut self.failure),
            Ok(addresses) => self.addresses = addresses,
            Err(failure) => self.failure = failure.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By RFC 6761 no name service knows it.
    const NOWHERE: &str = "redis.invalid";

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[tokio::test]
    async fn an_address_is_itself() {
        let name = CachedResolver::default();
        let looking = || name.addresses("127.0.0.1", 6_379);
        let (first, second) = tokio::join!(looking(), looking());
        assert_eq!(first.expect("an address"), [local(6_379)]);
        assert_eq!(second.expect("the same lookup will do"), [local(6_379)]);
    }

    #[tokio::test]
    async fn what_cannot_be_looked_up_is_where_it_was() {
        let name = CachedResolver::default();
        name.addresses(NOWHERE, 1).await.expect_err("nobody knows it");
        name.known.lock().addresses = vec![local(1)];
        assert_eq!(name.addresses(NOWHERE, 1).await.expect("the last address"), [local(1)]);
    }

    #[tokio::test]
    async fn a_name_service_that_hangs_is_not_asked_twice() {
        let name = CachedResolver::default();
        let hung = Arc::clone(&name.turn).lock_owned().await;
        let told = name.addresses("127.0.0.1", 1).await.expect_err("nothing is known yet");
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        name.known.lock().addresses = vec![local(2)];
        assert_eq!(name.addresses("127.0.0.1", 1).await.expect("the last address"), [local(2)]);
        drop(hung);
        assert_eq!(name.addresses("127.0.0.1", 1).await.expect("an address"), [local(1)]);
    }
}
