//! The files in `proto/` are subsets of the files that they name: each message, field, enum value and call is one of
//! Envoy's, with the same number and type. The crate `envoy-types` has the descriptors of the whole files.

#![cfg(test)]

mod generated;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");

/// Fields of Envoy 1.40, which the locked version of `envoy-types` does not have.
const NEWER: [&str; 2] = [
    "field envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.unit_multiplier = 3: \
     Optional Message .google.protobuf.UInt32Value ",
    "field envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.unit_multiplier = 4: \
     Optional Message .google.protobuf.UInt32Value ",
];

/// All facts of a descriptor set, a line for each.
fn facts(set: &FileDescriptorSet) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for file in &set.file {
        file.message_type.iter().for_each(|message| add_message(&mut facts, file.package(), message));
        file.enum_type.iter().for_each(|values| add_enum(&mut facts, file.package(), values));
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            facts.extend(service.method.iter().map(|call| {
                let streams = (call.client_streaming(), call.server_streaming());
                let (input, output) = (call.input_type(), call.output_type());
                format!("call {name}.{}: {input} to {output}, streams {streams:?}", call.name())
            }));
        }
    }
    facts
}

fn add_message(facts: &mut BTreeSet<String>, outer: &str, message: &DescriptorProto) {
    let name = format!("{outer}.{}", message.name());
    facts.extend(message.field.iter().map(|field| describe_field(&name, message, field)));
    message.nested_type.iter().for_each(|nested| add_message(facts, &name, nested));
    message.enum_type.iter().for_each(|values| add_enum(facts, &name, values));
    facts.insert(format!("message {name}"));
}

fn describe_field(outer: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let (name, number) = (field.name(), field.number());
    let kind = format!("{:?} {:?} {}", field.label(), field.r#type(), field.type_name());
    let oneof = field.oneof_index.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    format!("field {outer}.{name} = {number}: {kind} {}", oneof.map_or("", |oneof| oneof.name()))
}

fn add_enum(facts: &mut BTreeSet<String>, outer: &str, values: &EnumDescriptorProto) {
    let name = format!("{outer}.{}", values.name());
    facts.extend(
        values.value.iter().map(|value| format!("value {name}.{} = {}", value.name(), value.number())),
    );
}

/// The descriptors of the messages in `proto/`.
fn contract() -> FileDescriptorSet {
    decoded(&generated::compiler(&generated::SERVICES).encode_file_descriptor_set())
}

fn discovery() -> FileDescriptorSet {
    decoded(&generated::compiler(&generated::DISCOVERY).encode_file_descriptor_set())
}

fn decoded(descriptors: &[u8]) -> FileDescriptorSet {
    FileDescriptorSet::decode(descriptors).expect("a descriptor set")
}

/// The descriptors in the package of `envoy-types`, which its code does not export.
fn envoy() -> FileDescriptorSet {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "envoy-types").expect("a dependency");
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let file = manifest.with_file_name("src").join("generated/types.bin");
    decoded(&std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
}

#[test]
fn every_message_is_a_subset_of_envoys() {
    let envoy = facts(&envoy());
    let (contract, discovery) = (facts(&contract()), facts(&discovery()));
    for (ours, newer) in [(&contract, NEWER.as_slice()), (&discovery, [].as_slice())] {
        let of_envoy = |fact: &&String| !fact.contains(" kuadrant.");
        let unknown: Vec<_> = ours.difference(&envoy).filter(of_envoy).map(String::as_str).collect();
        assert_eq!(unknown, newer, "in proto/, but not in the files of Envoy");
        assert!(ours.iter().any(|fact| fact.starts_with("call envoy.service.")));
    }
}

/// The fields of limitador-server/proto/kuadrantrls.proto. No crate contains them.
#[test]
fn the_messages_of_kuadrant_are_the_released_ones() {
    let all = facts(&contract());
    let package = "kuadrant.service.ratelimit.v1";
    let of_kuadrant = all.iter().filter(|fact| fact.contains(&format!(" {package}.")));
    let shown: Vec<_> = of_kuadrant
        .map(|fact| fact.replace(package, "k").replace("envoy.service.ratelimit.v3", "e"))
        .collect();
    let descriptor = "Repeated Message .envoy.extensions.common.ratelimit.v3.RateLimitDescriptor ";
    let expected = [
        "call k.RateLimitService.CheckRateLimit: .e.RateLimitRequest to .e.RateLimitResponse, streams (false, false)",
        "call k.RateLimitService.Commit: .k.CommitRequest to .k.CommitResponse, streams (false, false)",
        "call k.RateLimitService.Report: .e.RateLimitRequest to .e.RateLimitResponse, streams (false, false)",
        "call k.RateLimitService.Reserve: .k.ReserveRequest to .k.ReserveResponse, streams (false, false)",
        "field k.CommitRequest.actual_amount = 4: Optional Uint64  ",
        &format!("field k.CommitRequest.descriptors = 2: {descriptor}"),
        "field k.CommitRequest.domain = 1: Optional String  ",
        "field k.CommitRequest.reservation_id = 3: Optional String  ",
        "field k.CommitResponse.reservation_released = 1: Optional Bool  ",
        "field k.ReserveRequest.amount = 3: Optional Uint64  ",
        &format!("field k.ReserveRequest.descriptors = 2: {descriptor}"),
        "field k.ReserveRequest.domain = 1: Optional String  ",
        "field k.ReserveRequest.ttl = 4: Optional Message .google.protobuf.Duration ",
        "field k.ReserveResponse.code = 1: Optional Enum .e.RateLimitResponse.Code ",
        "field k.ReserveResponse.reservation_id = 2: Optional String  ",
        "message k.CommitRequest",
        "message k.CommitResponse",
        "message k.ReserveRequest",
        "message k.ReserveResponse",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_change_of_one_field_is_found() {
    let original = contract();
    let changes: [fn(&mut FieldDescriptorProto); 4] = [
        |field| field.name = Some("domains".to_owned()),
        |field| field.number = Some(99),
        |field| field.set_type(prost_types::field_descriptor_proto::Type::Bytes),
        |field| field.set_label(prost_types::field_descriptor_proto::Label::Repeated),
    ];
    for change in changes {
        let mut changed = original.clone();
        let messages = changed.file.iter_mut().flat_map(|file| &mut file.message_type);
        let request = messages.into_iter().find(|message| message.name() == "RateLimitRequest");
        change(&mut request.expect("the request").field[0]);
        assert_eq!(facts(&changed).difference(&facts(&original)).count(), 1);
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_file_names_its_licence_and_its_origin() {
    let mut files = files_below(Path::new(ROOT));
    files.retain(|file| file.extension().is_some_and(|extension| extension == "proto"));
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        let head = "// SPDX-License-Identifier: Apache-2.0\n// From https://github.com/";
        assert!(text.starts_with(head) && text.contains("\n// A subset of "), "{}", file.display());
    }
}
