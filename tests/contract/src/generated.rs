//! `proto/generated/`: the Rust of the messages in `proto/`, and their descriptors. It is committed, so that a build
//! needs no compiler of protobuf files. After a change in `proto/`: `UPDATE_PROTO=1 cargo test -p ratelimitd-contract`.

use std::fs;
use std::path::{Path, PathBuf};

use protox::Compiler;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;
use protox::prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use tonic_prost_build::Builder;

use super::ROOT;

pub const SERVICES: [&str; 2] =
    ["envoy/service/ratelimit/v3/rls.proto", "kuadrant/service/ratelimit/v1/kuadrantrls.proto"];
/// The service of which we are a client, and the resources that it serves.
pub const DISCOVERY: [&str; 2] =
    ["envoy/service/discovery/v3/discovery.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];

#[test]
fn the_contract_with_callers_is_generated_from_its_files() {
    let mut contract = compile(&SERVICES);
    contract.file.iter_mut().for_each(read_texts_as_bytes);
    check("contract", &SERVICES, contract, tonic_prost_build::configure());
}

#[test]
fn the_discovery_service_is_generated_from_its_files() {
    let builder = tonic_prost_build::configure()
        // The stream is opened by src/xds/stream.rs.
        .build_server(false)
        .build_client(false)
        // An answer can have half a million empty descriptors: their fields must be small.
        .boxed("RateLimitDescriptor.rate_limit")
        .boxed("RateLimitDescriptor.metadata");
    check("discovery", &DISCOVERY, compile(&DISCOVERY), builder);
}

/// With the comments, which become docs.
fn compile(files: &[&str]) -> FileDescriptorSet {
    compiler(files).include_source_info(true).file_descriptor_set()
}

pub fn compiler(files: &[&str]) -> Compiler {
    let mut compiler = Compiler::new([ROOT]).expect("a folder");
    compiler.include_imports(true).open_files(files).expect("valid files");
    compiler
}

/// Compares what `builder` generates with `proto/generated/{folder}`, or writes it there if `UPDATE_PROTO` is set.
fn check(folder: &str, files: &[&str], set: FileDescriptorSet, builder: Builder) {
    let generated = tempfile::tempdir().expect("a folder");
    builder
        .out_dir(generated.path())
        .include_file("mod.rs")
        .emit_rerun_if_changed(false)
        .compile_fds(set)
        .expect("Rust of all messages");
    // What reflection hands out. Comments would only make it longer.
    let descriptors = compiler(files).encode_file_descriptor_set();
    fs::write(generated.path().join("descriptors.bin"), descriptors).expect("a written file");
    let committed = Path::new(ROOT).join("generated").join(folder);
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
    if std::env::var("UPDATE_PROTO").is_ok() {
        let _absent = fs::remove_dir_all(&committed);
        fs::create_dir_all(&committed).expect("a folder");
        for path in files_of(generated.path()) {
            fs::copy(&path, committed.join(path.file_name().expect("a name"))).expect("a written file");
        }
    }
    let contents = |folder: &Path| {
        let files = files_of(folder).into_iter();
        files.map(|path| (path.file_name().map(ToOwned::to_owned), fs::read(&path).ok())).collect::<Vec<_>>()
    };
    assert!(
        contents(&committed) == contents(generated.path()),
        "proto/generated/{folder} differs from proto/: UPDATE_PROTO=1 cargo test -p ratelimitd-contract"
    );
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    files.sort();
    files
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
