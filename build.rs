//! Compiles the protobuf definitions in `proto/` to Rust, without `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::Compiler;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;
use protox::prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto};

const ROOT: &str = "proto";
const SERVICES: [&str; 2] =
    ["envoy/service/ratelimit/v3/rls.proto", "kuadrant/service/ratelimit/v1/kuadrantrls.proto"];
/// The service of which we are a client, and the resources that it serves.
const DISCOVERY: [&str; 2] =
    ["envoy/service/discovery/v3/discovery.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script where to write by the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    compile_service(&out)?;
    compile_discovery(&out)
}

/// The contract with callers.
fn compile_service(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut compiler = Compiler::new([ROOT])?;
    compiler.include_imports(true).include_source_info(true).open_files(SERVICES)?;
    let mut contract = compiler.file_descriptor_set();
    contract.file.iter_mut().for_each(read_texts_as_bytes);
    // What reflection hands out. Comments would only make it longer.
    compiler.include_source_info(false);
    fs::write(out.join("contract.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .include_file("contract.rs")
        .emit_rerun_if_changed(false)
        .compile_fds(contract)?;
    Ok(())
}

/// Domain, keys and values of a request become byte strings in Rust: callers such as Envoy send headers as they are,
/// and these need not be UTF-8. On the wire, and in what reflection hands out, nothing changes.
fn read_texts_as_bytes(file: &mut FileDescriptorProto) {
    fn visit(message: &mut DescriptorProto) {
        if matches!(message.name(), "RateLimitRequest" | "ReserveRequest" | "CommitRequest" | "Entry") {
            for field in &mut message.field {
                if field.r#type() == Type::String {
                    field.set_type(Type::Bytes);
                }
            }
        }
        message.nested_type.iter_mut().for_each(visit);
    }
    file.message_type.iter_mut().for_each(visit);
}

/// In a folder of its own: both contracts have files of the package envoy.config.core.v3.
fn compile_discovery(out: &Path) -> Result<(), Box<dyn Error>> {
    let mut compiler = Compiler::new([ROOT])?;
    compiler.include_imports(true).include_source_info(true).open_files(DISCOVERY)?;
    let folder = out.join("discovery");
    fs::create_dir_all(&folder)?;
    // For tests/contract.rs.
    fs::write(out.join("discovery.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        // The stream is opened by src/xds/stream.rs.
        .build_server(false)
        .build_client(false)
        .out_dir(&folder)
        .include_file("discovery.rs")
        // An answer can have half a million empty descriptors: their fields must be small.
        .boxed("RateLimitDescriptor.rate_limit")
        .boxed("RateLimitDescriptor.metadata")
        .emit_rerun_if_changed(false)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
