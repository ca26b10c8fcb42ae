//! Redis as a [`RemoteStore`].

use std::error::Error;
use std::future::Future;

use engine::StoreError;
use futures_util::FutureExt;

use super::{RedisStore, ServerInfo};
use crate::breaker::BreakerState;
use crate::clock::SystemClock;
use crate::remote::{GroupStatus, ProbeFailure, RemoteStore, ServerDescription, ServerReport};

impl RemoteStore for RedisStore {
    const PRODUCT: &'static str = "Redis";

    async fn probe(&self, needs_log: bool) -> Result<(), ProbeFailure> {
        self.probe_groups(needs_log).await
    }

    async fn servers(&self) -> Vec<ServerReport> {
        let infos = Self::servers(self, &SystemClock).await.into_iter();
        let report = |(address, info): (String, Result<ServerInfo, _>)| ServerReport {
            address,
            description: info.map(|info| description(&info)),
        };
        infos.map(report).collect()
    }

    fn nodes(&self) -> Vec<(String, BreakerState)> {
        Self::nodes(self)
    }

    fn groups(&self) -> Vec<GroupStatus> {
        Self::groups(self)
    }

    fn connections_opened(&self) -> u64 {
        Self::connections_opened(self)
    }

    fn died(&self) -> impl Future<Output = Box<dyn Error + Send + Sync>> + Send + 'static {
        Self::died(self).map(Into::into)
    }

    fn close(&self) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static {
        let store = self.clone();
        async move { Ok(store.shutdown().await?) }
    }
}

fn description(info: &ServerInfo) -> ServerDescription {
    ServerDescription {
        server: known_or_reason(&info.server),
        run_id: info.run_id.clone(),
        keys: info.keys.clone().ok(),
        eviction: known_or_reason(&info.eviction),
        clock: known_or_reason(&info.clock),
        concerns: info.concerns().iter().map(ToString::to_string).collect(),
    }
}

/// A fact, or why it is unknown.
fn known_or_reason(fact: &Result<impl ToString, StoreError>) -> String {
    fact.as_ref().map_or_else(|error| format!("unknown ({error})"), ToString::to_string)
}
