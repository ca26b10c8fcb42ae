//! From settings to the options of the rooms that must not know settings.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::settings::{
    Breaker, DenyCache, RedisCredentials, RedisServer, RedisStore, RedisTopology, Response, ResponseHeaders,
    Server,
};
use crate::store::breaker::BreakerOptions;
use crate::store::deny_cache::DenyCacheOptions;
use crate::store::redis::{Credentials, Password, RedisOptions, SentinelOptions, TlsOptions, Topology};
use crate::transport::grpc::GrpcOptions;
use crate::transport::http::HttpOptions;
use crate::transport::{Bounds, HeaderStyle, ResponseOptions};

/// Far more than a fleet of Envoys opens; each costs some tens of kilobytes.
const MAX_GRPC_CONNECTIONS: usize = 10_000;
/// Probes, scrapers and people.
const MAX_HTTP_CONNECTIONS: usize = 1_024;
/// Decisions take milliseconds. What is not done by then is stuck.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn grpc(server: &Server) -> GrpcOptions {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    GrpcOptions {
        workers: server.workers.unwrap_or(cores),
        max_connections: MAX_GRPC_CONNECTIONS,
        max_connection_age: server.grpc.max_connection_age,
        finish_within: FINISH_WITHIN,
    }
}

pub(super) fn http() -> HttpOptions {
    HttpOptions { max_connections: MAX_HTTP_CONNECTIONS, finish_within: FINISH_WITHIN }
}

pub(super) fn bounds(server: &Server) -> Bounds {
    Bounds {
        max_descriptors: server.max_descriptors.get(),
        max_entries: server.max_entries.get(),
        max_value_bytes: server.max_value_bytes.get(),
    }
}

pub(super) fn response(response: Response) -> ResponseOptions {
    ResponseOptions {
        headers: match response.headers {
            ResponseHeaders::None => HeaderStyle::None,
            ResponseHeaders::EnvoyRatelimit => HeaderStyle::EnvoyRatelimit,
            ResponseHeaders::Ietf => HeaderStyle::Ietf,
        },
        retry_after: response.retry_after,
        dynamic_metadata: response.dynamic_metadata,
        exact_durations: response.exact_durations,
    }
}

pub(super) fn deny_cache(cache: &DenyCache, response: Response) -> DenyCacheOptions {
    // All of them speak of every limit that the request meets.
    let speaks_of_all =
        response.retry_after || response.dynamic_metadata || response.headers == ResponseHeaders::Ietf;
    DenyCacheOptions { max_age: cache.max_age, max_keys: cache.max_keys.get(), whole_answers: speaks_of_all }
}

pub(super) fn redis(redis: &RedisStore) -> RedisOptions {
    let server = &redis.server;
    RedisOptions {
        topology: topology(server),
        urls: server.urls.iter().map(|url| url.expose().to_owned()).collect(),
        credentials: credentials(&server.credentials),
        tls: TlsOptions {
            ca_file: server.tls.ca_file.clone(),
            identity: server.tls.identity.clone(),
            server_name: server.tls.server_name.clone(),
        },
        key_prefix: redis.key_prefix.clone(),
        timeout: redis.timeout,
        // The settings allow 64 at most.
        connections: u32::try_from(redis.connections.get()).unwrap_or(u32::MAX),
        max_batch: redis.max_batch.get(),
        max_queue: redis.max_queue.get(),
        breaker: redis.breaker.as_ref().map(breaker),
    }
}

fn breaker(breaker: &Breaker) -> BreakerOptions {
    BreakerOptions {
        failures: breaker.failures.get(),
        error_percent: breaker.error_percent.get(),
        window: breaker.window,
        pause: breaker.pause,
    }
}

fn topology(server: &RedisServer) -> Topology {
    match server.topology {
        RedisTopology::Standalone => Topology::Standalone,
        RedisTopology::Cluster => Topology::Cluster,
        RedisTopology::Sentinel => Topology::Sentinel(SentinelOptions {
            // The settings insist on one with this topology.
            master: server.sentinel.master.clone().unwrap_or_default(),
            credentials: credentials(&server.sentinel.credentials),
        }),
    }
}

fn credentials(of: &RedisCredentials) -> Credentials {
    let password = match (&of.password, &of.password_file) {
        (Some(secret), _) => Password::Text(secret.expose().to_owned()),
        (None, Some(path)) => Password::File(path.clone()),
        (None, None) => Password::FromUrl,
    };
    Credentials { username: of.username.clone(), password }
}
