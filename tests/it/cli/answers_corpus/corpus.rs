//! The corpora: their seeds and digests, their files, and the replay by the binary under test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::random::Random;
use super::requests;
use super::rule_files::{self, Files};

/// Rules and requests from one seed, and the settings to replay them with.
pub struct Corpus {
    pub name: &'static str,
    seed: u64,
    requests: usize,
    /// The settings file.
    settings: &'static str,
    /// Whether each domain has two files.
    merges_domains: bool,
    /// SHA-256 of the rule files and the requests.
    pub digest: &'static str,
    /// SHA-256 of the answers.
    pub answers: &'static str,
}

pub const CORPORA: [Corpus; 3] = [
    Corpus {
        name: "reference",
        seed: 1,
        requests: 40_000,
        settings: "{}\n",
        merges_domains: false,
        digest: "9a3255f1a7af4f342e66727f35165d130a3d9899eba9752823eed997d7e88b6f",
        answers: "0770f64b22f82a25062eb64859573e6d1babde9af29afc369e2a2b9515fef5bf",
    },
    Corpus {
        name: "gcra_prepaid",
        seed: 2,
        requests: 20_000,
        settings: "rules: { merge_domains: true }\ndefaults: { algorithm: gcra, charging: prepaid }\n",
        merges_domains: true,
        digest: "f9735029a1ebe8d20823d86b53bb75648fb5943418ed1ccbd0e4d83e21f94d98",
        answers: "7e4d5fc3969728576efed2750e177feb5df972d28703ce092eaadd623abe956b",
    },
    Corpus {
        name: "sliding_window_postpaid",
        seed: 3,
        requests: 20_000,
        settings: "defaults: { algorithm: sliding_window, charging: postpaid }\n",
        merges_domains: false,
        digest: "b2b9c6af5f6fc0d2eccb4d909329c321371896b0addffa1bcc2f6ac919ba26f3",
        answers: "eb96ab56b219bb4de1f7468c0630a0c75001cbff767b5c5d24be5a6c988dc4fa",
    },
];

const DOMAINS: usize = 6;

impl Corpus {
    /// The rule files, each with its name, and the requests.
    pub fn generate(&self) -> (Files, String) {
        let mut random = Random::with_seed(self.seed);
        let (domains, files) = rule_files::generate(&mut random, DOMAINS, self.merges_domains);
        let requests = requests::generate(&mut random, &domains, self.requests);
        (files, requests)
    }

    /// Writes settings, rules and requests into `folder`. Returns the digest of rules and requests.
    pub fn write(&self, folder: &Path) -> String {
        let (files, requests) = self.generate();
        let rules = folder.join("rules");
        // A rule file of an earlier run would be read as well.
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(&rules).expect("a folder below target");
        let mut digest = Sha256::new();
        for (name, text) in &files {
            digest.update(text);
            fs::write(rules.join(name), text).expect("a rule file");
        }
        digest.update(&requests);
        fs::write(folder.join("settings.yaml"), self.settings).expect("the settings file");
        fs::write(folder.join("requests.jsonl"), requests).expect("the requests");
        hex(digest)
    }

    /// Replays the corpus in `folder`. Returns the file with the answers.
    pub fn replay(&self, folder: &Path, redis: Option<&str>) -> PathBuf {
        let answers = folder.join("answers.jsonl");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
        command.arg("replay").arg("--config").arg(folder.join("settings.yaml"));
        command.arg("--rules").arg(folder.join("rules"));
        command.arg("--requests").arg(folder.join("requests.jsonl"));
        if let Some(url) = redis {
            command.args(["--redis", url]);
        }
        let output = command.stdout(File::create(&answers).expect("a file for the answers")).output();
        let output = output.expect("the binary runs");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: replay failed: {problem}", self.name);
        answers
    }
}

/// A SHA-256 as text.
pub fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
