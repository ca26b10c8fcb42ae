//! Reads the inputs of a target and runs it on them. A panic names the input.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::clock::monotonic;

use super::changed::Changes;

/// Changed inputs of a target in a usual test run, where [`SECONDS`] is not set.
const CHANGED_INPUTS: usize = 50;
/// How long each target gets changed inputs: `make fuzz` where libFuzzer cannot be built.
const SECONDS: &str = "RATELIMITD_FUZZ_SECONDS";
/// The seed of a usual run, so that it fails again after it failed.
const SEED: u64 = 10;

pub fn project_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The folders of the corpus, one for each target.
pub fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(project_path("fuzz/corpus")).expect("the corpus");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The inputs of a folder, in the order of their names.
pub fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder of the corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("an input"))).collect()
}

/// Runs a target on its corpus, and then on changed inputs.
pub fn replay(name: &str, target: fn(&[u8])) {
    let inputs = inputs(&project_path("fuzz/corpus").join(name));
    assert!(!inputs.is_empty(), "{name} has no corpus");
    for (path, input) in &inputs {
        run(target, input, || path.display().to_string());
    }
    let (seconds, started) = (seconds(), monotonic());
    let seed = if seconds.is_some() { fastrand::u64(..) } else { SEED };
    let mut changes = Changes::new(inputs.into_iter().map(|(_, input)| input).collect(), seed);
    for done in 0.. {
        let goes_on = match seconds {
            Some(seconds) => started.elapsed() < Duration::from_secs(seconds),
            None => done < CHANGED_INPUTS,
        };
        if !goes_on {
            println!("{name}: {done} changed inputs");
            return;
        }
        let input = changes.next_input();
        run(target, &input, || keep(name, &input).display().to_string());
    }
}

fn run(target: fn(&[u8]), input: &[u8], place: impl Fn() -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        eprintln!("the input is in {}", place());
        resume_unwind(panic);
    }
}

/// Writes an input that breaks a property to where libFuzzer writes such inputs.
fn keep(name: &str, input: &[u8]) -> PathBuf {
    let folder = project_path("fuzz/artifacts").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let path =
        folder.join(format!("crash-{:08x}", crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(input)));
    fs::write(&path, input).expect("the input is written");
    path
}

#[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
fn seconds() -> Option<u64> {
    Some(std::env::var(SECONDS).ok()?.parse().expect("a number of seconds"))
}
