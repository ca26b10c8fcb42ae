//! Reads rules from an xDS server: a client of the aggregated discovery service, state of the world.
//!
//! Other modules do not read protobuf types: they pass a [`Resource`] to the rule reader. A [`ResourceSink`] checks and
//! applies the resources, and the client reports the result to the server. `client` keeps one stream open at a time;
//! `fetch` queries once, for commands.

mod client;
mod connect;
mod fetch;
mod options;
mod pace;
mod resources;
mod state;
mod stream;
mod subscription;

/// Discovery service and resources generated from `proto/`, one module per package.
mod pb {
    include!("../../proto/generated/discovery/mod.rs");
}

pub use client::{ResourceSink, XdsClient};
pub use fetch::{Fetched, XdsFetchError, fetch};
pub use options::{BackoffOptions, NodeIdentity, ServerAddress, XdsOptions, parse_headers};
pub use resources::Resource;
pub use state::{Refusal, XdsFault, XdsState, XdsStatus};
