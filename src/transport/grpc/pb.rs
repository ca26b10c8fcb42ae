//! The wire contract as generated from `proto/`, module by package.

#![expect(missing_docs, reason = "generated; the comments are in proto/")]

include!(concat!(env!("OUT_DIR"), "/contract.rs"));

/// The contract for reflection: an encoded `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
