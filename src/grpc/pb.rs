//! The wire contract as generated from `proto/`, one module per package.

include!(concat!(env!("OUT_DIR"), "/contract.rs"));

/// For reflection: an encoded `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
