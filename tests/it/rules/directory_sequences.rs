//! The recorded situations that follow others, ConfigMaps under each setting, and swapped links: as in `directory`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rules::{Change, RuleDirectory};
use serde_json::Value;

use super::directory::{
    ANY, RECORDED, Step, Watched, config_map, differs, options, recorded, rename, rules, same, with_a,
    with_a_and_b, write,
};

const BROKEN: &str = "domain: a\ndescriptors: [\n";
const WITH_ROOT: RuleDirectory = RuleDirectory::AnyFilesAndBeside;

#[test]
fn a_file_that_is_still_being_written_is_not_read() {
    let mut watched = Watched::start("c", options(ANY), with_a);
    let text = rules("a", 2);
    // For envoyproxy/ratelimit the first piece, an empty file, is an empty rule set for a second.
    for end in [0, text.len() / 3, text.len() / 2, text.len()] {
        write(watched.root.path(), "c/a.yaml", &text[..end]);
        watched.now += Duration::from_millis(250);
        let change = watched.reloader.check_files(watched.now);
        assert!(matches!(change, Change::Unsettled { .. }), "{end} bytes: {change:?}");
    }
    watched.settle();
    assert_eq!(watched.served, recorded("slow write in place: 4 pieces, 300 ms between"));
}

#[test]
fn changes_that_follow_others_are_served() {
    let touch = |root: &Path| write(root, "c/a.yaml", &rules("a", 1));
    let mut moved = Watched::start("c", options(ANY), with_a_and_b);
    rename(moved.root.path(), "c/b.yaml", "b.yaml");
    moved.settle();
    moved.play(&same("then touch a.yaml", touch));

    let below = |root: &Path| {
        with_a(root);
        write(root, "c/team/b.yaml", &rules("b", 1));
    };
    let mut watched = Watched::start("c", options(ANY), below);
    write(watched.root.path(), "c/team/b.yaml", &rules("b", 2));
    watched.settle();
    watched.play(&same("then a.yaml touched", touch));

    let mut removed = Watched::start("c", options(ANY), with_a);
    fs::remove_dir_all(removed.root.path().join("c")).expect("a directory");
    removed.settle();
    write(removed.root.path(), "c/b.yaml", &rules("b", 5));
    removed.settle();
    removed.play(&differs(
        "then the file changed again",
        |root| write(root, "c/b.yaml", &rules("b", 6)),
        &["b.k: unit=HOUR n=6"],
        "there the watch is lost with the directory",
    ));

    let mut replaced = Watched::start("c", options(ANY), with_a);
    write(replaced.root.path(), "new/a.yaml", &rules("a", 6));
    rename(replaced.root.path(), "c", "old");
    rename(replaced.root.path(), "new", "c");
    replaced.settle();
    replaced.play(&differs(
        "then the file in the new directory changed",
        |root| write(root, "c/a.yaml", &rules("a", 7)),
        &["a.k: unit=HOUR n=7"],
        "the path counts, not the directory that it led to at the start",
    ));
}

#[test]
fn mistakes_are_mended_and_the_rules_may_go() {
    let mended = || same("then mended", |root| write(root, "c/a.yaml", &rules("a", 3)));
    let broken = |root: &Path| write(root, "c/a.yaml", BROKEN);
    let mut reloaded = Watched::start("c", options(ANY), with_a);
    broken(reloaded.root.path());
    reloaded.settle();
    assert_eq!(reloaded.served, ["a.k: unit=HOUR n=1"]);
    reloaded.play(&mended());
    // The same for first rules that are not valid.
    let mut first = Watched::start("c", options(ANY), broken);
    assert_eq!(first.served, [""; 0]);
    first.play(&mended());
    first.play(&same("then the file deleted (empty config)", |root| {
        fs::remove_file(root.join("c/a.yaml")).expect("a file");
    }));
    first.play(&same("then a file", |root| write(root, "c/a.yaml", &rules("a", 3))));
}

#[test]
fn files_of_editors_whose_names_start_with_a_dot_are_passed_over() {
    let mut watched = Watched::start("c", options(ANY), with_a);
    watched.play(&same("the same with RUNTIME_IGNOREDOTFILES=false", |root| {
        write(root, "c/.a.yaml.swp", "b0VIM");
        rename(root, "c/a.yaml", "c/a.yaml~");
        write(root, "c/a.yaml", &rules("a", 2));
        fs::remove_file(root.join("c/.a.yaml.swp")).expect("a file");
    }));
}

/// The two updates of a ConfigMap, with the reason why they are served here and not there.
fn config_map_updates(names: [&'static str; 2], why: &'static str) -> [Step; 2] {
    let [first, second] = names;
    [
        differs(
            first,
            |root| config_map(root, "2", &[("a", 2), ("b", 2)]),
            &["a.k: unit=HOUR n=2", "b.k: unit=HOUR n=2"],
            why,
        ),
        differs(
            second,
            |root| {
                config_map(root, "3", &[("b", 3)]);
                fs::remove_file(root.join("c/a.yaml")).expect("a link");
            },
            &["b.k: unit=HOUR n=3"],
            why,
        ),
    ]
}

#[test]
fn config_maps_work_with_every_setting() {
    const TWICE: &str = "names that start with two dots are not read; there each file is read twice";
    const NOT_WATCHED: &str = "every change is noticed; there only a swap of RUNTIME_ROOT";
    let cases = [
        (
            ANY,
            config_map_updates(
                [
                    "ConfigMap update: WATCH_ROOT=false IGNOREDOTFILES=false",
                    "ConfigMap second update, file removed: WATCH_ROOT=false IGNOREDOTFILES=false",
                ],
                TWICE,
            ),
        ),
        (
            WITH_ROOT,
            config_map_updates(
                [
                    "ConfigMap update: WATCH_ROOT=true IGNOREDOTFILES=true",
                    "ConfigMap second update, file removed: WATCH_ROOT=true IGNOREDOTFILES=true",
                ],
                NOT_WATCHED,
            ),
        ),
        (
            WITH_ROOT,
            config_map_updates(
                [
                    "ConfigMap update: WATCH_ROOT=true IGNOREDOTFILES=false (defaults)",
                    "ConfigMap second update, file removed: WATCH_ROOT=true IGNOREDOTFILES=false (defaults)",
                ],
                TWICE,
            ),
        ),
    ];
    for (directory, steps) in cases {
        let mut watched = Watched::start("c", options(directory), |root| config_map(root, "1", &[("a", 1)]));
        assert_eq!(watched.served, ["a.k: unit=HOUR n=1"]);
        steps.iter().for_each(|step| watched.play(step));
    }
}

#[test]
fn links_are_followed_wherever_they_stand() {
    let prepare = |root: &Path| {
        write(root, "v1/config/a.yaml", &rules("a", 1));
        write(root, "v5/config/a.yaml", &rules("a", 5));
        write(root, "v5/config.y.yaml", &rules("y", 1));
        write(root, "v6/config/a.yaml", BROKEN);
        write(root, "v7/config/a.yaml", &rules("a", 5));
        symlink("v1", root.join("current")).expect("a link");
    };
    fn swap(root: &Path, version: &str) {
        symlink(version, root.join("new")).expect("a link");
        rename(root, "new", "current");
    }
    let mut watched = Watched::start("current/config", options(WITH_ROOT), prepare);
    watched.play(&differs(
        "write in place below current/",
        |root| write(root, "v1/config/a.yaml", &rules("a", 2)),
        &["a.k: unit=HOUR n=2"],
        "every change is noticed, not only the swap of the link",
    ));
    watched.play(&same("symlink swap back by rm + ln -s", |root| {
        fs::remove_file(root.join("current")).expect("a link");
        symlink("v7", root.join("current")).expect("a link");
    }));
    watched.play(&same("swap to a tree with a broken file", |root| swap(root, "v6")));
    swap(watched.root.path(), "v5");
    watched.settle();
    watched.play(&same(
        "another entry appears in the directory of the link (mkdir beside current)",
        |root| {
            fs::create_dir(root.join("beside")).expect("a directory");
        },
    ));

    let linked = |root: &Path| {
        write(root, "real/a.yaml", &rules("a", 1));
        symlink("real", root.join("c")).expect("a link");
    };
    Watched::start("c", options(ANY), linked).play(&differs(
        "write in the real directory",
        |root| write(root, "real/a.yaml", &rules("a", 2)),
        &["a.k: unit=HOUR n=2"],
        "there a directory that is a link has no rules",
    ));
}

#[test]
fn every_recorded_situation_is_played() {
    let tests = concat!(include_str!("directory.rs"), include_str!("directory_sequences.rs"));
    let all: Value = serde_json::from_str(RECORDED).expect("JSON");
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), 52);
    for case in all {
        let situation = case["situation"].as_str().expect("a text");
        assert!(tests.contains(&format!("{situation:?}")), "{situation} is not played");
    }
}
