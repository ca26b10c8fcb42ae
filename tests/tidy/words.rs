//! Constructions that make the prose hard to read: some never, others less and less. Lower a limit when you beat it.
//! A match is a hint, and its absence proves nothing: write for the reader first.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::source::{production, report};

struct Habit {
    pattern: &'static str,
    instead: &'static str,
    /// The most matches in README, CONTRIBUTING and `docs/*.md`.
    pages: usize,
    /// The most matches in the comments of production code.
    comments: usize,
}

const HABITS: [Habit; 13] = [
    Habit {
        pattern: r"\bothers than\b|\bother (one|ones|[a-z]+) than\b|(counts|[Ll]ook) also|the begin\b|at the first time",
        instead: "`different from`, `also counts`, `the start`",
        pages: 0,
        comments: 0,
    },
    Habit {
        pattern: r"(^|[.;] )[Ww]ho [a-z]+s ",
        instead: "`anyone who`, or name the person",
        pages: 0,
        comments: 0,
    },
    Habit {
        pattern: r"\b(is|are|was|were) no \w+",
        instead: "negate the verb: `is not valid`",
        pages: 0,
        comments: 0,
    },
    Habit {
        pattern: r"\b(has|have|had) no \w+",
        instead: "`lacks`, `without`, or a positive word",
        pages: 3,
        comments: 60,
    },
    Habit {
        pattern: r"^(- |\| )?(A|An|The|Each|Every|All|Any) (\w+ ){1,4}(that|which|whose|who) ",
        instead: "`if` or `when`, subject, verb",
        pages: 1,
        comments: 238,
    },
    Habit {
        pattern: r"\b(has|have|had|gets?|gives?|takes?|makes?|brings?)\b",
        instead: "the relation: lists, serves, defines, returns, needs, costs",
        pages: 320,
        comments: 1120,
    },
    Habit {
        pattern: r"\b(at|after|before|since|until|from) the (start|stop|begin|end)([^ a-z]| [^o]|$)",
        instead: "a verb with an actor, or startup, shutdown",
        pages: 0,
        comments: 12,
    },
    Habit {
        pattern: r"\b(knows?|tells?|told|believes?|sees?|learns?|wants?|forgets?)\b",
        instead: "the mechanism: stores, depends on, sends, trusts",
        pages: 60,
        comments: 31,
    },
    Habit {
        pattern: r"\bthe [a-z-]+ of (the|a|an|its|each|all|every)\b",
        instead: "a compound: `the API server`",
        pages: 45,
        comments: 352,
    },
    Habit {
        pattern: r"\b(those|that) (of|in|from|by|with|without|before|for)\b",
        instead: "the noun again",
        pages: 0,
        comments: 54,
    },
    Habit {
        pattern: r", too\b|\band so (do|does|is|are)\b|which is so|same holds",
        instead: "`also` before the verb",
        pages: 0,
        comments: 11,
    },
    Habit {
        pattern: r"\b(in force|used up|mends?|mended|judged)\b",
        instead: "current, exhausted, fix, candidate",
        pages: 2,
        comments: 3,
    },
    Habit {
        pattern: r"(like|as) there\b|; there \b|\b(doors?|rooms?|roads?) of\b",
        instead: "the name: envoyproxy/ratelimit; transport, module, path",
        pages: 0,
        comments: 0,
    },
];

/// Each match of a pattern, as `file:line: words`. `there is no` and `no longer` are plain English.
fn matches(pattern: &Regex, text: &[(String, String)]) -> Vec<String> {
    let plain = Regex::new(r"\b[Tt]here (is|are|was|were) no\b|\bno (longer|more)\b").expect("a pattern");
    let clean = text.iter().map(|(place, line)| (place, plain.replace_all(line, "")));
    clean
        .flat_map(|(place, line)| {
            pattern.find_iter(&line).map(|found| format!("{place}: `{}`", found.as_str())).collect::<Vec<_>>()
        })
        .collect()
}

fn lines(name: &str, text: &str) -> Vec<(String, String)> {
    text.lines().enumerate().map(|(at, line)| (format!("{name}:{}", at + 1), line.to_owned())).collect()
}

fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir("docs").expect("docs: run from the project's root");
    let docs = docs.map(|entry| entry.expect("a readable entry").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = pages.chain(["README.md", "CONTRIBUTING.md"].map(PathBuf::from));
    let read = |path: &Path| lines(&path.display().to_string(), &fs::read_to_string(path).expect("UTF-8"));
    pages.flat_map(|path| read(&path)).collect()
}

fn comments() -> Vec<(String, String)> {
    let commented = production().into_iter().flat_map(|source| lines(&source.name(), &source.text));
    let words = |(place, line): (String, String)| {
        let comment = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!', ' ']).to_owned();
        Some((place, comment))
    };
    commented.filter_map(words).collect()
}

#[test]
fn habits_fade() {
    let (pages, comments) = (pages(), comments());
    let mut problems = Vec::new();
    for habit in &HABITS {
        let pattern = Regex::new(habit.pattern).expect("a pattern");
        for (text, limit) in [(&pages, habit.pages), (&comments, habit.comments)] {
            let found = matches(&pattern, text);
            if found.len() > limit {
                let (count, instead) = (found.len(), habit.instead);
                let places = if limit == 0 { found.join("\n  ") } else { format!("/{}/", habit.pattern) };
                problems.push(format!("{count}, at most {limit}; write {instead}:\n  {places}"));
            }
        }
    }
    report(&problems);
}
