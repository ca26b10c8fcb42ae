//! The fuzz targets on the inputs of `fuzz/corpus/`, and on changed copies of them. An input that once broke a property
//! belongs in the corpus, so that it stays tested. `make fuzz` searches for further inputs with libFuzzer.
//!
//! Targets that need a redis-server are in `redis`.

mod changed;
mod corpus;
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use corpus::replay;

#[test]
fn http2_frames_end_the_connection_and_nothing_else() {
    replay("grpc_frames", targets::grpc_frames::run);
}

#[test]
fn messages_are_answered_or_refused() {
    replay("grpc_messages", targets::grpc_messages::run);
}

#[test]
fn json_bodies_are_answered_or_refused() {
    replay("json_bodies", targets::json_bodies::run);
}

#[test]
fn replies_of_redis_are_outcomes_or_errors() {
    replay("redis_replies", targets::redis_replies::run);
}

#[test]
fn rule_files_load_again_to_the_same() {
    replay("rule_files", targets::rule_files::run);
}

#[test]
fn settings_load_again_to_the_same_and_show_no_password() {
    replay("settings", targets::settings::run);
}

mod redis {
    use super::{replay, targets};

    #[test]
    fn memory_and_script_agree_on_sequences() {
        replay("sequences", targets::sequences::run);
    }
}

#[test]
fn every_target_has_a_corpus_and_a_program_for_libfuzzer() {
    let names = |folder: &str| {
        let entries = std::fs::read_dir(corpus::project_path(folder)).expect("a folder");
        let name =
            |path: std::path::PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry").path())).collect();
        names.sort();
        names
    };
    assert_eq!(names("fuzz/corpus"), names("fuzz/fuzz_targets"));
    let manifest = std::fs::read_to_string(corpus::project_path("fuzz/Cargo.toml")).expect("a manifest");
    for name in names("fuzz/fuzz_targets").into_iter().flatten() {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}

#[test]
fn the_corpus_is_small() {
    const MOST_BYTES: usize = 1 << 20;
    let bytes: usize =
        corpus::folders().iter().flat_map(|folder| corpus::inputs(folder)).map(|i| i.1.len()).sum();
    assert!(bytes < MOST_BYTES, "{bytes}");
}
