//! Where the rules are.

use std::path::PathBuf;

use super::draft::Draft;
use super::xds;

const DIRECTORY: [&str; 3] = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
const WATCH_ROOT: &str = "RUNTIME_WATCH_ROOT";

pub(super) fn translate(draft: &mut Draft) {
    match draft.values.text("CONFIG_TYPE") {
        "FILE" => translate_directory(draft),
        xds::CONFIG_TYPE => xds::translate(draft),
        "" => {
            draft.values.warn("CONFIG_TYPE is empty, so rules are read from files");
            translate_directory(draft);
        }
        _ => draft.values.refuse("CONFIG_TYPE", format!("FILE or {}, in capitals", xds::CONFIG_TYPE)),
    }
    for (variable, key) in [
        ("MERGE_DOMAIN_CONFIG", "rules.merge_domains"),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "rules.require_domain"),
    ] {
        let text = draft.values.flag(variable).to_string();
        draft.set_if_given(key, text, variable);
    }
}

fn translate_directory(draft: &mut Draft) {
    let mut path = PathBuf::new();
    for name in DIRECTORY {
        // A slash at the start of a part does not make it absolute, as there.
        let part = draft.values.text(name);
        path.push(if path.as_os_str().is_empty() { part } else { part.trim_start_matches('/') });
    }
    if path.as_os_str().is_empty() {
        path.push(".");
    }
    let mut variables: Vec<&'static str> = DIRECTORY.to_vec();
    draft.set("rules.path", path.display().to_string(), &DIRECTORY);
    variables.push(WATCH_ROOT);
    draft.set("rules.directory", directory(draft), &variables);
    let ignore_dot_files = draft.values.flag("RUNTIME_IGNOREDOTFILES");
    draft.set("rules.dot_files", (!ignore_dot_files).to_string(), &["RUNTIME_IGNOREDOTFILES"]);
}

/// Which files of the directory are read.
fn directory(draft: &Draft) -> &'static str {
    let values = &draft.values;
    match (values.flag(WATCH_ROOT), values.text("RUNTIME_SUBDIRECTORY")) {
        // `envoyproxy/ratelimit` reads no rules then, so a missing directory is no mistake.
        (true, "") => "optional",
        (true, _) => "any_files_and_beside",
        (false, _) => "any_files",
    }
}
