//! Replays a large random corpus of rules and requests, and compares the SHA-256 of the answers with the recorded one.
//! Memory and Redis give the same answers, so both share one digest.
//!
//! Each run keeps the corpus and the answers in `target/tmp/answers_corpus`: the answers of two commits can be compared
//! line by line.

mod corpus;
mod limits;
mod random;
mod requests;
mod rule_files;

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use corpus::{CORPORA, Corpus, hex};

const RULE_KINDS: [&str; 20] = [
    "algorithm: fixed_window",
    "algorithm: sliding_window",
    "algorithm: sliding_log",
    "algorithm: gcra",
    "algorithm: token_bucket",
    "algorithm: leaky_bucket",
    "requests_per_unit: 0,",
    "burst: ",
    "refill: continuous",
    "refill: interval",
    "mode: queue",
    "charging: prepaid",
    "charging: postpaid",
    "unlimited: true",
    "replaces: ",
    "rate_limits:",
    "shadow_mode: true",
    "quota_mode: true",
    "share_threshold: true",
    "metadata: ",
];
const REQUEST_KINDS: [&str; 5] =
    [r#""limit":{"#, r#""hits_addend":0"#, r#""is_negative_hits":true"#, "\n\n", r#""domain":"elsewhere""#];

fn check(corpus: &Corpus, store: &str, redis: Option<&str>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answers_corpus").join(store).join(corpus.name);
    assert_eq!(
        corpus.write(&folder),
        corpus.digest,
        "corpus {}: the generator gives another corpus than the recorded one. This says nothing about decisions: undo \
         the change of the generator, or record both digests again from a commit with correct decisions",
        corpus.name
    );
    let answers = corpus.replay(&folder, redis);
    let mut digest = Sha256::new();
    digest.update(fs::read(&answers).expect("the answers"));
    assert_eq!(hex(digest), corpus.answers, "{}", explanation(corpus.name, store, &answers));
}

fn explanation(name: &str, store: &str, answers: &Path) -> String {
    format!(
        "corpus {name}, decided by {store}: the answers are not the recorded ones, so a decision, a remaining amount \
         or a time has changed.\n\
         The answers are in {}. Line N answers request N of requests.jsonl, blank lines not counted.\n\
         To see the first difference, run this test in a clone at the last commit that passes it, and compare:\n  \
         diff {{CLONE,.}}/target/tmp/answers_corpus/{store}/{name}/answers.jsonl | head\n\
         Where only one of memory and redis fails, compare their two files here: they have to be the same.\n\
         If the change is intended, record the new digest and tell operators in CHANGELOG.md.",
        answers.display(),
    )
}

#[test]
fn the_corpora_have_every_kind_of_rule_and_request() {
    let (mut rules, mut lines) = (String::new(), String::new());
    for corpus in &CORPORA {
        let (files, requests) = corpus.generate();
        rules.extend(files.into_iter().map(|(_, text)| text));
        lines.push_str(&requests);
    }
    for (kinds, text) in [(&RULE_KINDS[..], rules), (&REQUEST_KINDS[..], lines)] {
        for kind in kinds {
            assert!(text.contains(kind), "no corpus has {kind}");
        }
    }
}

/// Replays every corpus, on memory or on the Redis at a URL, and compares the answers with the recorded digests.
pub(crate) fn check_all(store: &str, redis: Option<&str>) {
    for corpus in &CORPORA {
        check(corpus, store, redis);
    }
}

#[test]
fn memory_gives_the_recorded_answers() {
    check_all("memory", None);
}
