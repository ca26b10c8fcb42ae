//! The rule directory of `envoyproxy/ratelimit`: plays the recorded changes of it, and compares what is served
//! afterwards with what was served there. Where it differs, the step says why.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base::clock::monotonic;
use rules::{Change, LoadOptions, Reloader, RuleDirectory, rlconfig};
use serde_json::Value;
use tempfile::TempDir;

pub(super) const RECORDED: &str = include_str!("../../data/operation/rule-directory.json");

/// A change of the directory, and what is served after it.
pub(super) struct Step {
    situation: &'static str,
    action: fn(&Path),
    /// What this service serves where envoyproxy/ratelimit serves something else, and why.
    instead: Option<(&'static [&'static str], &'static str)>,
}

pub(super) fn same(situation: &'static str, action: fn(&Path)) -> Step {
    Step { situation, action, instead: None }
}

pub(super) fn differs(
    situation: &'static str,
    action: fn(&Path),
    served: &'static [&'static str],
    why: &'static str,
) -> Step {
    Step { situation, action, instead: Some((served, why)) }
}

/// A directory, and its reloader.
pub(super) struct Watched {
    pub(super) root: TempDir,
    pub(super) reloader: Reloader,
    pub(super) served: Vec<String>,
    pub(super) now: std::time::Instant,
}

pub(super) fn options(directory: RuleDirectory) -> LoadOptions {
    LoadOptions { directory, ..super::REFERENCE }
}

pub(super) const ANY: RuleDirectory = RuleDirectory::AnyFiles;

impl Watched {
    /// `path` is below the root, which `prepare` fills.
    pub(super) fn start(path: &str, options: LoadOptions, prepare: fn(&Path)) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        prepare(root.path());
        let paths: [PathBuf; 1] = [root.path().join(path)];
        let (reloader, loaded) = Reloader::start(&paths, options);
        let served = loaded.map(|loaded| lines(&rlconfig(&loaded.rules))).unwrap_or_default();
        Self { root, reloader, served, now: monotonic() }
    }

    /// Checks until nothing changes any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..3 {
            self.now += std::time::Duration::from_millis(250);
            if let Change::Loaded(Ok(loaded)) = self.reloader.check_files(self.now) {
                self.served = lines(&rlconfig(&loaded.rules));
            }
        }
    }

    pub(super) fn play(&mut self, step: &Step) {
        (step.action)(self.root.path());
        self.settle();
        let there = recorded(step.situation);
        match &step.instead {
            None => assert_eq!(self.served, there, "{}", step.situation),
            Some((served, why)) => {
                assert_eq!(self.served, *served, "{}: {why}", step.situation);
                assert_ne!(self.served, there, "{} is the same by now", step.situation);
            }
        }
    }
}

/// `a.k: unit=HOUR n=1`, sorted.
fn lines(config: &str) -> Vec<String> {
    let mut lines: Vec<String> = config
        .lines()
        .filter_map(|line| line.split_once(", shadow_mode"))
        .map(|(line, _)| line.replace("requests_per_unit=", "n="))
        .collect();
    lines.sort();
    lines
}

pub(super) fn recorded(situation: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(RECORDED).expect("JSON");
    let found = all.as_array().expect("a list").iter().find(|case| case["situation"] == situation);
    let rules = &found.unwrap_or_else(|| panic!("{situation} was not recorded"))["served"];
    rules.as_array().expect("a list").iter().map(|line| line.as_str().expect("a text").to_owned()).collect()
}

pub(super) fn rules(domain: &str, limit: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n  - key: k\n    rate_limit: {{unit: hour, requests_per_unit: {limit}}}\n"
    )
}

pub(super) fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

pub(super) fn with_a(root: &Path) {
    write(root, "c/a.yaml", &rules("a", 1));
}

pub(super) fn with_a_and_b(root: &Path) {
    with_a(root);
    write(root, "c/b.yaml", &rules("b", 1));
}

pub(super) fn rename(root: &Path, from: &str, to: &str) {
    fs::rename(root.join(from), root.join(to)).expect("a file");
}

/// How editors and programs write a file.
fn ways_to_write() -> Vec<Step> {
    vec![
        same("write in place (open w, write, close)", |root| write(root, "c/a.yaml", &rules("a", 2))),
        same("atomic rename over the file, from outside of the directory", |root| {
            write(root, "new", &rules("a", 2));
            rename(root, "new", "c/a.yaml");
        }),
        same("temporary a.yaml.tmp beside it (300 ms), then rename over a.yaml", |root| {
            write(root, "c/a.yaml.tmp", &rules("a", 2));
            rename(root, "c/a.yaml.tmp", "c/a.yaml");
        }),
        same("temporary .a.yaml.tmp beside it (300 ms), then rename over a.yaml", |root| {
            write(root, "c/.a.yaml.tmp", &rules("a", 2));
            rename(root, "c/.a.yaml.tmp", "c/a.yaml");
        }),
        same("rename a.yaml -> b.yaml within the directory", |root| rename(root, "c/a.yaml", "c/b.yaml")),
        same("new file b.yaml", |root| write(root, "c/b.yaml", &rules("b", 7))),
        same("delete the only file", |root| fs::remove_file(root.join("c/a.yaml")).expect("a file")),
        same("vim-like: .a.yaml.swp, 4913 probe, a.yaml -> a.yaml~, new a.yaml, rm a.yaml~", |root| {
            write(root, "c/.a.yaml.swp", "b0VIM");
            write(root, "c/4913", "");
            rename(root, "c/a.yaml", "c/a.yaml~");
            write(root, "c/a.yaml", &rules("a", 2));
        }),
        differs(
            "emacs-like: #a.yaml# auto-save, a.yaml~ left behind, then in place",
            |root| {
                write(root, "c/#a.yaml#", &rules("a", 2));
                write(root, "c/a.yaml~", &rules("a", 1));
                write(root, "c/a.yaml", &rules("a", 2));
            },
            &["a.k: unit=HOUR n=2"],
            "the copies of editors are passed over; there they stop every load",
        ),
    ]
}

/// Files that are not rules, are wrong, or are somewhere else.
fn unusual_files() -> Vec<Step> {
    vec![
        same("bad reload: broken yaml written in place", |root| {
            write(root, "c/a.yaml", "domain: a\ndescriptors: [\n")
        }),
        same("bad reload: unknown key in a new file", |root| {
            write(root, "c/b.yaml", "domain: b\ndescriptors: [{key: k, ratelimit: {}}]\n");
        }),
        same("README.txt with prose put beside", |root| {
            write(root, "c/README.txt", "These are the limits.\n")
        }),
        same("notes.md whose text is a yaml map with unknown key", |root| {
            write(root, "c/notes.md", "a: 1\n")
        }),
        same("an empty file empty.yaml", |root| write(root, "c/empty.yaml", "")),
        same("a file of comments only", |root| write(root, "c/c.yaml", "# nothing\n")),
        same("same domain in a second file", |root| write(root, "c/b.yaml", &rules("a", 5))),
        differs(
            "new sub-directory, 300 ms later a file in it",
            |root| write(root, "c/team/b.yaml", &rules("b", 5)),
            &["a.k: unit=HOUR n=1", "b.k: unit=HOUR n=5"],
            "directories below are watched, too",
        ),
        same("dangling symlink b.yaml", |root| {
            symlink("/nowhere/b.yaml", root.join("c/b.yaml")).expect("a link")
        }),
        differs(
            "directory replaced by rename",
            |root| {
                write(root, "new/a.yaml", &rules("a", 6));
                rename(root, "c", "old");
                rename(root, "new", "c");
            },
            &["a.k: unit=HOUR n=6"],
            "the path counts, not the directory that it led to at the start",
        ),
        same("chmod of the file (no content change)", |root| {
            let mut permissions = fs::metadata(root.join("c/a.yaml")).expect("a file").permissions();
            permissions.set_readonly(true);
            fs::set_permissions(root.join("c/a.yaml"), permissions).expect("a file");
        }),
    ]
}

#[test]
fn single_changes_are_served_as_recorded() {
    for step in ways_to_write().into_iter().chain(unusual_files()) {
        Watched::start("c", options(ANY), with_a).play(&step);
    }
}

#[test]
fn files_of_one_domain_are_merged_with_the_setting() {
    let merging = LoadOptions { merge_domains: true, ..options(ANY) };
    let text = "domain: a\ndescriptors: [{key: z, rate_limit: {unit: hour, requests_per_unit: 5}}]\n";
    let mut watched = Watched::start("c", merging, with_a);
    write(watched.root.path(), "c/b.yaml", text);
    watched.settle();
    assert_eq!(watched.served, recorded("same domain in a second file, MERGE_DOMAIN_CONFIG=true"));
}

#[test]
fn a_file_that_goes_and_one_in_a_directory_below_are_noticed() {
    let mut watched = Watched::start("c", options(ANY), with_a_and_b);
    watched.play(&same("delete b.yaml", |root| fs::remove_file(root.join("c/b.yaml")).expect("a file")));
    let mut watched = Watched::start("c", options(ANY), with_a_and_b);
    watched.play(&differs(
        "move b.yaml out of the directory",
        |root| rename(root, "c/b.yaml", "b.yaml"),
        &["a.k: unit=HOUR n=1"],
        "noticed at once, there at the next event",
    ));
    let below = |root: &Path| {
        with_a(root);
        write(root, "c/team/b.yaml", &rules("b", 1));
    };
    let mut watched = Watched::start("c", options(ANY), below);
    watched.play(&differs(
        "file in a sub-directory that was there at start, changed in place",
        |root| write(root, "c/team/b.yaml", &rules("b", 2)),
        &["a.k: unit=HOUR n=1", "b.k: unit=HOUR n=2"],
        "noticed at once, there at the next event of the directory above",
    ));
}

#[test]
fn a_directory_that_disappears_keeps_its_rules() {
    let mut watched = Watched::start("c", options(ANY), with_a);
    fs::remove_dir_all(watched.root.path().join("c")).expect("a directory");
    watched.settle();
    assert_eq!(watched.served, ["a.k: unit=HOUR n=1"]);
    watched.play(&differs(
        "directory removed, 300 ms later made anew with another file",
        |root| write(root, "c/b.yaml", &rules("b", 5)),
        &["b.k: unit=HOUR n=5"],
        "there the watch is lost with the directory",
    ));
    write(watched.root.path(), "c/b.yaml", &rules("b", 6));
    watched.settle();
    assert_eq!(watched.served, ["b.k: unit=HOUR n=6"]);
}

/// The layout of a ConfigMap volume: files are links through `..data`, which is swapped.
pub(super) fn config_map(root: &Path, version: &str, files: &[(&str, u32)]) {
    let data = format!("c/..{version}");
    for (domain, limit) in files {
        write(root, &format!("{data}/{domain}.yaml"), &rules(domain, *limit));
        let link = root.join(format!("c/{domain}.yaml"));
        if link.symlink_metadata().is_err() {
            symlink(format!("..data/{domain}.yaml"), link).expect("a link");
        }
    }
    symlink(format!("..{version}"), root.join("c/..data_tmp")).expect("a link");
    rename(root, "c/..data_tmp", "c/..data");
}

#[test]
fn config_maps_are_updated() {
    let first = |root: &Path| config_map(root, "1", &[("a", 1)]);
    let mut watched = Watched::start("c", options(ANY), first);
    let update = |root: &Path| config_map(root, "2", &[("a", 2), ("b", 2)]);
    watched.play(&same("ConfigMap update: WATCH_ROOT=false IGNOREDOTFILES=true", update));
    watched.play(&same(
        "ConfigMap second update, file removed: WATCH_ROOT=false IGNOREDOTFILES=true",
        |root| {
            config_map(root, "3", &[("b", 3)]);
            fs::remove_file(root.join("c/a.yaml")).expect("a link");
            fs::remove_dir_all(root.join("c/..1")).expect("a directory");
        },
    ));
}

#[test]
fn swapped_links_are_followed() {
    let beside = RuleDirectory::AnyFilesAndBeside;
    let prepare = |root: &Path| {
        write(root, "v1/sub/config/a.yaml", &rules("a", 1));
        write(root, "v2/sub/config/a.yaml", &rules("a", 2));
        write(root, "v3/other/x.yaml", "");
        write(root, "v4/sub/config/a.yaml", &rules("a", 5));
        write(root, "v4/sub/config.y.yaml", &rules("y", 1));
        write(root, "v4/sub/z.yaml", &rules("z", 1));
        write(root, "v5/sub/config/a.yaml", "domain: a\ndescriptors: [\n");
        symlink("v1", root.join("current")).expect("a link");
    };
    fn swap(root: &Path, version: &str) {
        symlink(version, root.join("new")).expect("a link");
        rename(root, "new", "current");
    }
    let mut watched = Watched::start("current/sub/config", options(beside), prepare);
    watched.play(&same("symlink swap: ln -s v2 new; mv -T new current", |root| swap(root, "v2")));
    swap(watched.root.path(), "v5");
    watched.settle();
    assert_eq!(watched.served, ["a.k: unit=HOUR n=2"], "a broken tree changes nothing");
    watched.play(&differs(
        "swap to a tree without the sub-directory",
        |root| swap(root, "v3"),
        &["a.k: unit=HOUR n=2"],
        "rules that disappear as a whole are a mistake",
    ));
    watched
        .play(&same("swap to a tree with files beside config/ and deep below it", |root| swap(root, "v4")));
    // Written in place, which envoyproxy/ratelimit does not notice.
    write(watched.root.path(), "v4/sub/config/a.yaml", &rules("a", 9));
    watched.settle();
    assert_eq!(watched.served, ["a.k: unit=HOUR n=9", "y.k: unit=HOUR n=1"]);
}

#[test]
fn a_directory_that_is_a_link_works() {
    let prepare = |root: &Path| {
        write(root, "real/a.yaml", &rules("a", 1));
        symlink("real", root.join("c")).expect("a link");
    };
    let mut watched = Watched::start("c", options(ANY), prepare);
    assert_eq!(watched.served, ["a.k: unit=HOUR n=1"]);
    write(watched.root.path(), "real/a.yaml", &rules("a", 2));
    watched.settle();
    assert_eq!(watched.served, ["a.k: unit=HOUR n=2"]);
}

#[test]
fn rules_of_any_name_may_not_vanish_by_a_mistake() {
    let prepare = |root: &Path| write(root, "c/limits.conf", &rules("a", 1));
    let mut watched = Watched::start("c", options(ANY), prepare);
    assert_eq!(watched.served, ["a.k: unit=HOUR n=1"]);
    for mistake in ["", "These are no rules.\n", "domain: a\ndescriptors: [\n"] {
        write(watched.root.path(), "c/limits.conf", mistake);
        watched.settle();
        assert_eq!(watched.served, ["a.k: unit=HOUR n=1"], "{mistake:?}");
    }
    fs::remove_file(watched.root.path().join("c/limits.conf")).expect("a file");
    watched.settle();
    assert_eq!(watched.served, [""; 0]);
}
