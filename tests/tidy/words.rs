//! Words: comments and pages are whole, plain sentences, for readers whose second language English is.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::source::{everything, report};

/// What a text must not say, and what to write instead.
const REFUSED: [(&str, &str); 5] = [
    (r"\b[Ss]o (many|often|deep)\b", "say the bound: `at most this many`, `this often`, `this deep`"),
    (r"\b[Ss]o long\b", "say `this long`, or `as long as` for a condition"),
    (r"^Of ", "begin with the subject, not with `Of`"),
    (r"\b[Aa]s there($|[,.;:)]| (is|are)? ?(not|no)?$)", "name it: `like envoyproxy/ratelimit`"),
    (r"\b(does not occur|cannot fail today|never occurs)\b", "let the types say it, or give the reason"),
];

/// The paragraphs of the comments of a source file, each with the number of its first line.
fn comments<'t>(text: &'t str, marks: &[&str]) -> Vec<(usize, String)> {
    let comment = |line: &'t str| {
        let line = line.trim_start();
        marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim)
    };
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        match comment(line) {
            Some(words) if !words.is_empty() => {
                match paragraphs.last_mut() {
                    Some((_, paragraph)) if is_open => *paragraph = format!("{paragraph} {words}"),
                    _ => paragraphs.push((at + 1, words.to_owned())),
                }
                is_open = true;
            }
            _ => is_open = false,
        }
    }
    paragraphs
}

/// The paragraphs of a page.
fn page(text: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        match paragraphs.last_mut() {
            _ if line.trim().is_empty() => is_open = false,
            Some((_, paragraph)) if is_open => *paragraph = format!("{paragraph} {}", line.trim()),
            _ => {
                paragraphs.push((at + 1, line.trim().to_owned()));
                is_open = true;
            }
        }
    }
    paragraphs
}

fn problems(name: &str, paragraphs: &[(usize, String)]) -> Vec<String> {
    let rules = REFUSED.map(|(pattern, advice)| (Regex::new(pattern).expect("a pattern"), advice));
    let mut problems = Vec::new();
    for (line, paragraph) in paragraphs {
        for (pattern, advice) in &rules {
            if let Some(found) = pattern.find(paragraph) {
                problems.push(format!("{name}:{line}: `{}`: {advice}", found.as_str()));
            }
        }
    }
    problems
}

fn files_with(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let paths = paths.flat_map(|path| if path.is_dir() { files_with(&path, ending) } else { vec![path] });
    paths.filter(|path| path.extension().is_some_and(|extension| extension == ending)).collect()
}

#[test]
fn comments_and_pages_are_plain_sentences() {
    let mut found = Vec::new();
    // This file has the refused words.
    for source in everything().iter().filter(|source| !source.path.ends_with("tidy/words.rs")) {
        found.extend(problems(&source.name(), &comments(&source.text, &["///", "//!", "//"])));
    }
    let scripts = files_with(Path::new("crates/store/src"), "lua");
    let pages =
        [files_with(Path::new("docs"), "md"), ["README.md", "CONTRIBUTING.md"].map(PathBuf::from).to_vec()];
    for path in scripts {
        let text = fs::read_to_string(&path).expect("UTF-8");
        found.extend(problems(&path.display().to_string(), &comments(&text, &["--"])));
    }
    for path in pages.concat() {
        let text = fs::read_to_string(&path).expect("UTF-8");
        found.extend(problems(&path.display().to_string(), &page(&text)));
    }
    report(&found);
}

#[test]
fn the_dialect_is_found_across_lines() {
    let said = |text: &str| problems("a.rs", &comments(text, &["///", "//!", "//"])).len();
    for refused in [
        "/// Waits for so\n/// many calls.",
        "// Of the last request.",
        "/// As there, the umask decides.",
        "//! The same order as there.",
        "// Does nothing; this never occurs.",
    ] {
        assert_eq!(said(refused), 1, "{refused}");
    }
    for plain in [
        "/// Waits for at most this many calls, as long as there are some.",
        "let text = \"so many\";",
        "/// As there is no rule, the request passes.",
        "// Some of the calls wait, so that others go on.",
    ] {
        assert_eq!(said(plain), 0, "{plain}");
    }
}
