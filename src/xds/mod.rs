//! Rules from an xDS server: a client of the aggregated discovery service, state of the world.
//!
//! Knows the protocol, the connection and the messages; types of protobuf stop here. Makes drafts of rules, which
//! `rules` checks and compiles as it does with files. Decides nothing, and puts nothing in force: the caller does.

mod options;

pub use options::{BackoffOptions, NodeIdentity, ServerAddress, TlsFiles, XdsOptions, parse_headers};
