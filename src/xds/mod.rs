//! Rules from an xDS server: a client of the aggregated discovery service, state of the world.
//!
//! Knows the protocol, the connection and the messages; types of protobuf stop here. Hands resources to its
//! [`ResourceSink`], which checks them and puts them in force, and reports the result to the server. Decides nothing.
//!
//! One stream at a time: `connect` makes a connection, `stream` exchanges requests and answers on it, `client` repeats
//! both for ever. `subscription` builds the requests, `pace` says when to wait. `fetch` asks once, for commands.

mod client;
mod connect;
mod fetch;
mod options;
mod pace;
mod resources;
mod state;
mod stream;
mod subscription;

/// The discovery service and its resources as generated from `proto/`, one module per package.
mod pb {
    include!(concat!(env!("OUT_DIR"), "/discovery/discovery.rs"));
}

pub use client::{ResourceSink, XdsClient};
pub use fetch::{Fetched, XdsFetchError, fetch};
pub use options::{BackoffOptions, NodeIdentity, ServerAddress, XdsOptions, parse_headers};
pub use state::{Refusal, XdsFault, XdsState, XdsStatus};
