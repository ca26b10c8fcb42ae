//! The scripts as Lua: what luac and luacheck say of them, and that a server knows them by the SHA1 of their files.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use ::store::observer::NoopObserver;
use ::store::redis::{RedisStore, Script, scripts};
use engine::Cost;

use super::{decide_one, kernels, patient_options};
use crate::support::redis::Redis;

/// Runs a tool on the files of all scripts, in their folder.
fn run_on_scripts(tool: &str, arguments: &[&str]) -> Output {
    let folder = PathBuf::from("crates/store/src/redis/script/lua");
    let files = scripts().map(|script| format!("{}.lua", script.name()));
    let run = Command::new(tool).current_dir(folder).args(arguments).args(files).output();
    run.unwrap_or_else(|error| panic!("{tool}: {error}. `make tools` installs it"))
}

#[test]
fn luac_compiles_the_scripts() {
    let output = run_on_scripts("luac", &["-p"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn luacheck_has_no_warning() {
    let output = run_on_scripts("luacheck", &["--no-color"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn a_server_knows_the_scripts_by_their_sha1() {
    let redis = Redis::start();
    let sha1s: Vec<&str> = scripts().map(Script::sha1).collect();
    let known =
        || redis.run::<Vec<bool>>(&[&["SCRIPT", "EXISTS"], sha1s.as_slice()].concat()).expect("EXISTS");
    assert_eq!(known(), vec![false; sha1s.len()]);
    let store =
        RedisStore::new(&patient_options(&redis.url()), Arc::new(NoopObserver)).expect("good options");
    let [(name, kernel), ..] = kernels(10);
    decide_one(&store, kernel, name, Cost::take(1)).await.expect("a decision");
    assert_eq!(known(), vec![true; sha1s.len()]);
}
