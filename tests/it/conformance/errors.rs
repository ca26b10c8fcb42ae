//! The rule files that the reference refuses: this service refuses them too, with the file and the reason.

use rules::{LoadOptions, load};

use super::case;
use crate::rules::REFERENCE;
use crate::support::yaml;

/// Files that are accepted here: every file below the directory is read, and unquoted numbers above 2^63 - 1.
const ACCEPTED: [&str; 2] = ["files-swap", "leaf-large"];

/// Files whose message has other words here, with the words.
const OTHER_WORDS: [(&str, &str); 2] = [
    ("list-with-null", "config error, yaml file contains list of type other than map: nothing"),
    ("metadata-not-utf-8", "error loading config file: the value of !!binary is not UTF-8"),
];

/// What the reference says before errors of its YAML parser. They are worded by another parser here.
const OF_THE_PARSER: &str = "error loading config file: ";

#[test]
fn bad_rule_files_are_refused_with_file_and_reason() {
    let text = std::fs::read_to_string(case::folder().join("errors.yaml")).expect("the bad rule files");
    let list = yaml::parse(&text);
    let list = list.as_array().expect("a list");
    assert!(list.len() >= 53, "only {} files found", list.len());
    let mut problems = Vec::new();
    for bad in list {
        let (name, message) =
            (bad["name"].as_str().expect("a name"), bad["message"].as_str().expect("a message"));
        let directory = tempfile::tempdir().expect("a directory");
        let files = case::texts(&bad["files"]);
        for (file, text) in &files {
            std::fs::write(directory.path().join(file), text).expect("a rule file");
        }
        let merge_domains = bad["settings"]["MERGE_DOMAIN_CONFIG"] == "true";
        let result = load(&[directory.path().to_owned()], LoadOptions { merge_domains, ..REFERENCE });
        let is_accepted = ACCEPTED.contains(&name);
        match result {
            Ok(_) if !is_accepted => problems.push(format!("{name}: accepted, but there: {message}")),
            Err(found) if is_accepted => problems.push(format!("{name}: is listed as accepted: {found}")),
            Ok(_) => {}
            Err(found) => {
                let (last, _) = files.last().expect("a file");
                let found = found.to_string();
                let other = OTHER_WORDS.iter().find(|(other, _)| *other == name).map(|(_, words)| *words);
                let same = if message.starts_with(OF_THE_PARSER) { OF_THE_PARSER } else { message };
                let start = other.unwrap_or(same);
                if !found.contains(last.as_str()) || !found.contains(start) {
                    problems.push(format!("{name}: {found}\n  there: {message}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
