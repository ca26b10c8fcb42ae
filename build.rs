//! Compiles the wire contract in `proto/` to Rust, without `protoc`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use protox::Compiler;

const ROOT: &str = "proto";
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script where to write by the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ROOT}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiler = Compiler::new([ROOT])?;
    compiler.include_imports(true).include_source_info(true).open_file(SERVICE)?;
    let contract = compiler.file_descriptor_set();
    // What reflection hands out. Comments would only make it longer.
    compiler.include_source_info(false);
    fs::write(out.join("contract.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        // Decision calls are answered by transport/grpc/call.rs.
        .build_server(false)
        .include_file("contract.rs")
        .emit_rerun_if_changed(false)
        .compile_fds(contract)?;
    Ok(())
}
