//! Marks in Redis, one key each. They are side calls, as in `rows`.

use base::hex;
use engine::StoreError;

use super::RedisStore;
use crate::marks::MarkId;

impl RedisStore {
    /// Sets the mark `<prefix>n:<id>` for `for_us` microseconds (at least a millisecond). Returns `true` if it was not
    /// set: of all processes that set it, one gets `true`. `process` is its value, for people.
    ///
    /// # Errors
    /// [`StoreError`] if Redis does not answer within 2 s. The mark may be set nevertheless.
    pub async fn mark_once(&self, id: &MarkId, process: &str, for_us: u64) -> Result<bool, StoreError> {
        let key = [format!("{}n:{}", self.handle.backends.options.key_prefix, hex(id))];
        let command = |_| {
            let mut set = redis::cmd("SET");
            set.arg(&key[0]).arg(process).arg("NX").arg("PX").arg(for_us.div_ceil(1_000).max(1));
            set
        };
        let reply: Option<String> = self.side_call(&key, &command).await?;
        Ok(reply.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observer::NoopObserver;
    use crate::redis::options::RedisOptions;
    use crate::redis::testing::{FakeServer, Reply};

    #[tokio::test(start_paused = true)]
    async fn a_mark_is_a_key_that_is_set_only_if_it_is_absent() {
        let server = FakeServer::listen("redis.test", 6_379, |_| None);
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        let options = RedisOptions { urls, key_prefix: "p:".to_owned(), ..RedisOptions::default() };
        let store = RedisStore::new(&options, Arc::new(NoopObserver)).expect("good options");
        let mark = async |for_us| store.mark_once(&[0xab; 16], "here", for_us).await;
        server.handle(|command| (command[0] == "SET").then(|| Reply::Bulk("OK".to_owned())));
        assert_eq!(mark(1_500).await, Ok(true));
        server.handle(|command| (command[0] == "SET").then_some(Reply::Nil));
        assert_eq!(mark(0).await, Ok(false));
        let key = format!("p:n:{}", "ab".repeat(16));
        for (sent, ms) in server.commands("SET").iter().zip(["2", "1"]) {
            assert_eq!(sent[..], ["SET", &key, "here", "NX", "PX", ms]);
        }
        server.handle(|command| (command[0] == "SET").then_some(Reply::Error("NOPERM no SET")));
        assert_eq!(mark(1).await, Err(StoreError::Forbidden("NOPERM no SET".to_owned())));
    }
}
