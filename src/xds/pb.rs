//! The discovery service and its resources as generated from `proto/`, one module per package.

include!(concat!(env!("OUT_DIR"), "/discovery/discovery.rs"));
