//! Lists keys with `SCAN`, page by page, over a side connection.

use engine::{KeyPage, Listing, StoreError};
use tokio::time::Instant;

use super::RedisStore;
use super::replay::escape_pattern;
use super::rows::SIDE_CALL_TIMEOUT;

/// Keys that a server looks at for one page. Among a million keys, `SCAN` keeps it busy for 2 us each, so a decision
/// waits for no longer than behind a batch of counters.
const LOOKED_AT: usize = 64;

impl Listing for RedisStore {
    /// The cursor is a server's name, and its cursor of `SCAN`. Lists the servers one after the other, by name.
    async fn list(&self, start: &str, cursor: Option<&str>) -> Result<Option<KeyPage>, StoreError> {
        let (backends, deadline) = (&self.handle.backends, Instant::now() + SIDE_CALL_TIMEOUT);
        backends.find_servers(deadline).await?;
        let mut nodes = backends.nodes();
        nodes.sort_by(|one, other| one.name().cmp(other.name()));
        let parsed = match cursor {
            None => nodes.first().map(|first| (first.name(), 0)),
            Some(cursor) => {
                cursor.rsplit_once(' ').and_then(|(name, scanned)| Some((name, scanned.parse().ok()?)))
            }
        };
        let Some((name, scanned)) = parsed else { return Ok(None) };
        let scanned: u64 = scanned;
        let Some(index) = nodes.iter().position(|node| node.name() == name) else { return Ok(None) };
        let node = &nodes[index];
        let prefix = &backends.options.key_prefix;
        let pattern = format!("{}[|}}]*", escape_pattern(&format!("{prefix}{start}")));
        let mut command = redis::cmd("SCAN");
        command.arg(scanned).arg("MATCH").arg(pattern).arg("COUNT").arg(LOOKED_AT);
        let mut connection = self.handle.side_calls.take(node, deadline).await?;
        let (scanned, keys): (u64, Vec<Vec<u8>>) = connection.query(&command, deadline).await?;
        self.handle.side_calls.keep(node, connection);
        let without_prefix =
            |key: Vec<u8>| Some(String::from_utf8(key).ok()?.strip_prefix(prefix.as_str())?.to_owned());
        let keys = keys.into_iter().filter_map(without_prefix).collect();
        let next = if scanned > 0 { Some((name, scanned)) } else { None };
        let next = next.or_else(|| nodes.get(index + 1).map(|node| (node.name(), 0)));
        Ok(Some(KeyPage { keys, next: next.map(|(name, scanned)| format!("{name} {scanned}")) }))
    }
}
