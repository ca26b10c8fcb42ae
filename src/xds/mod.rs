//! Rules from an xDS server: a client of the aggregated discovery service, state of the world.
//!
//! Knows the protocol, the connection and the messages; types of protobuf stop here. Hands resources to its
//! [`ResourceSink`], which checks them and puts them in force, and reports the result to the server. Decides nothing.
//!
//! One stream at a time: `connect` makes a connection, `stream` speaks on it, `client` repeats both for ever.
//! `subscription` builds the requests, `codec` bounds the answers, `pace` and `backoff` say when to wait. `fetch` asks
//! once, for commands.

mod backoff;
mod client;
mod codec;
mod connect;
mod fetch;
mod options;
mod pace;
mod pb;
mod resources;
mod state;
mod stream;
mod subscription;

pub use client::{ResourceSink, XdsClient};
pub use fetch::{Fetched, XdsFetchError, fetch};
pub use options::{BackoffOptions, NodeIdentity, ServerAddress, XdsOptions, parse_headers};
pub use state::{Refusal, XdsFault, XdsState, XdsStatus};
