//! The commented settings file, the documentation and the code agree on every setting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ratelimitd::settings::{Setting, Settings, Written};

fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_settings_file_shows_every_setting_with_its_default() {
    let path = in_project("config/ratelimitd.yaml");
    let written = Written::collect(Some(&path), []).expect("the file is YAML");
    let (settings, _) = Settings::load(written).expect("the file holds known settings only");
    assert_eq!(settings, Settings::default());
    let file =
        config::Config::builder().add_source(config::File::from(path)).build().expect("the file is YAML");
    for Setting { key, default, .. } in Settings::catalogue() {
        if default == "[]" {
            let written = file.get_array(&key).unwrap_or_else(|error| panic!("{key}: {error}"));
            assert!(written.is_empty(), "{key} in config/ratelimitd.yaml");
            continue;
        }
        let written = file.get_string(&key).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(written, default, "{key} in config/ratelimitd.yaml");
    }
}

#[test]
fn the_documentation_lists_every_setting() {
    let path = in_project("docs/configuration.md");
    let text = std::fs::read_to_string(path).expect("docs/configuration.md is there");
    let rows: Vec<(&str, [&str; 2])> = text.lines().flat_map(documented_settings).collect();
    let documented: BTreeMap<&str, [&str; 2]> = rows.iter().copied().collect();
    assert_eq!(documented.len(), rows.len(), "docs/configuration.md lists a setting twice");
    let catalogue = Settings::catalogue();
    for setting in &catalogue {
        let [default, meaning] =
            documented.get(&*setting.key).unwrap_or_else(|| panic!("{} has no row", setting.key));
        assert_eq!(*default, setting.default, "{} in docs/configuration.md", setting.key);
        for value in values(&setting.expected) {
            assert!(
                meaning.contains(&value),
                "{} in docs/configuration.md does not name {value}",
                setting.key
            );
        }
        // The page gives this rule instead of a column.
        let variable = format!("RATELIMITD__{}", setting.key.to_uppercase().replace('.', "__"));
        assert_eq!(setting.variable, variable);
    }
    assert_eq!(documented.len(), catalogue.len(), "docs/configuration.md lists settings that do not exist");
}

/// The keys of a row of a settings table, each with the default and the meaning. Settings may share a row.
fn documented_settings(line: &str) -> Vec<(&str, [&str; 2])> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    match cells[..] {
        ["", keys, default, meaning, ""] if keys.starts_with('`') => {
            let row = [default.trim_matches('`'), meaning];
            keys.split(", ").map(|key| (key.trim_matches('`'), row)).collect()
        }
        _ => Vec::new(),
    }
}

/// What the page says of the values that a setting takes: the ends of a range, or each name.
fn values(expected: &str) -> Vec<String> {
    if let Some((_, range)) = expected.split_once(" from ") {
        return vec![range.split([' ', ',']).take(3).collect::<Vec<_>>().join(" ")];
    }
    let names = expected.strip_prefix("one of ").filter(|names| !names.contains(" or "));
    names.into_iter().flat_map(|names| names.split(", ")).map(|name| format!("`{name}`")).collect()
}
