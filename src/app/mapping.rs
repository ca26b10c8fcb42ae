//! The mapping of statsd_exporter that an estate of envoyproxy/ratelimit names. Its rules are not executed: the names
//! and labels of the metrics are built in. A file with the built-in rules is known, whatever its layout; any other file
//! would change names, so it is refused.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::telemetry::metrics::ResponseTimeUnit;
use crate::yaml::{self, Content, Node, Scalar};

/// Why a mapping cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("line {line}: {reason}")]
    Yaml { line: u32, reason: String },
    #[error("it has more, or less, than a list `mappings`")]
    NoRules,
    #[error(
        "line {line}: the rule for {matched} is not one of the mapping of envoyproxy/ratelimit or Envoy Gateway, \
         so the metrics would have other names than it says; remove the setting, or translate names in Prometheus"
    )]
    UnknownRule { line: u32, matched: String },
    #[error("it has {found} rules, and the mapping of envoyproxy/ratelimit has {expected}")]
    OtherNumber { found: usize, expected: usize },
}

/// The keys and values of a rule, with dots between the levels.
type MappingRule = BTreeMap<String, String>;

const COUNTERS: [&str; 5] = ["near_limit", "over_limit", "total_hits", "within_limit", "shadow_mode"];

/// A known mapping.
struct KnownMapping {
    /// The regular expression for a path with more than one key.
    deep: &'static str,
    response_time: ResponseTimeUnit,
}

const KNOWN: [KnownMapping; 3] = [
    // Envoy Gateway, and envoyproxy/ratelimit until April 2026.
    KnownMapping { deep: DEEP, response_time: ResponseTimeUnit::Milliseconds },
    // envoyproxy/ratelimit since.
    KnownMapping { deep: DEEP, response_time: ResponseTimeUnit::Seconds },
    // Both, earlier: it has no labels for paths with exactly two keys.
    KnownMapping { deep: r"(.*)\.(.*)\.(.*)(\..*)", response_time: ResponseTimeUnit::Milliseconds },
];

const DEEP: &str = r"([^\.]*)\.([^\.]*)\.([^\.]*)(\..*)?";

/// The unit of the histogram of response times. `unit` is the one of the built-in mapping, which replaces a file that
/// does not exist.
///
/// # Errors
/// [`MappingError`] for a file with other rules than the built-in ones.
pub(super) fn response_time(path: &Path, unit: ResponseTimeUnit) -> Result<ResponseTimeUnit, MappingError> {
    match std::fs::read_to_string(path) {
        Ok(text) => recognise(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let path = path.display();
            tracing::warn!("metrics.mapping_file: {path} does not exist: the built-in mapping is used");
            Ok(unit)
        }
        Err(error) => Err(MappingError::Unreadable(error)),
    }
}

fn recognise(text: &str) -> Result<ResponseTimeUnit, MappingError> {
    let document =
        yaml::parse(text).map_err(|error| MappingError::Yaml { line: error.line, reason: error.reason })?;
    let rules = document.root.as_ref().and_then(rules_of).ok_or(MappingError::NoRules)?;
    let written: Vec<_> = rules.iter().map(flat).collect();
    // The known mapping that agrees the longest says which rule is not known.
    let mut agreeing = 0;
    for known in KNOWN {
        let expected = known.rules();
        let same =
            written.iter().zip(&expected).take_while(|(written, expected)| written == expected).count();
        if same == written.len() && same == expected.len() {
            return Ok(known.response_time);
        }
        agreeing = agreeing.max(same);
    }
    match rules.get(agreeing).zip(written.get(agreeing)) {
        Some((rule, keys)) => {
            let matched =
                keys.get("match").map_or_else(|| "nothing".to_owned(), |matched| format!("{matched:?}"));
            Err(MappingError::UnknownRule { line: rule.line, matched })
        }
        None => Err(MappingError::OtherNumber { found: rules.len(), expected: KNOWN[0].rules().len() }),
    }
}

/// The rules, if the root has nothing else.
fn rules_of(root: &Node) -> Option<&[Node]> {
    let Content::Map(pairs) = &root.content else { return None };
    match &pairs[..] {
        [(key, rules)] if scalar(key) == Some("mappings") => match &rules.content {
            Content::List(rules) => Some(rules),
            _ => None,
        },
        _ => None,
    }
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.content {
        Content::Scalar(Scalar { text, .. }) => Some(text),
        _ => None,
    }
}

/// A part that is no text gets a key that no known rule has.
fn flat(rule: &Node) -> MappingRule {
    let Content::Map(pairs) = &rule.content else {
        return MappingRule::from([("[]".to_owned(), String::new())]);
    };
    let mut keys = MappingRule::new();
    let mut add = |name: String, value: &Node| match scalar(value) {
        Some(text) => keys.insert(name, text.to_owned()),
        None => keys.insert(format!("{name}[]"), String::new()),
    };
    for (key, value) in pairs.iter() {
        let name = match scalar(key) {
            // Both names of the key mean the same.
            Some("observer_type") => "timer_type",
            Some(name) => name,
            None => "[]",
        };
        match &value.content {
            Content::Map(below) => {
                for (key, value) in below.iter() {
                    add(format!("{name}.{}", scalar(key).unwrap_or("[]")), value);
                }
            }
            _ => {
                add(name.to_owned(), value);
            }
        }
    }
    keys
}

impl KnownMapping {
    fn rules(&self) -> Vec<MappingRule> {
        let flat = COUNTERS.map(|counter| {
            let mut rule = of_rules(&format!("ratelimit.service.rate_limit.*.*.{counter}"), counter);
            rule.extend(labels(&["domain", "key1"]));
            rule
        });
        let deep = COUNTERS.map(|counter| {
            let pattern = format!(r"ratelimit\.service\.rate_limit\.{}\.{counter}", self.deep);
            let mut rule = of_rules(&pattern, counter);
            rule.insert("match_type".to_owned(), "regex".to_owned());
            rule.extend(labels(&["domain", "key1", "key2"]));
            rule
        });
        let calls = [
            counter("ratelimit.service.call.should_rate_limit.*", "should_rate_limit_error", &["err_type"]),
            counter("ratelimit_server.*.total_requests", "total_requests", &["grpc_method"]),
            self.response_times(),
        ];
        let loads = ["config_load_success", "config_load_error"]
            .map(|name| counter(&format!("ratelimit.service.{name}"), name, &[]));
        flat.into_iter().chain(deep).chain(calls).chain(loads).collect()
    }

    fn response_times(&self) -> MappingRule {
        let mut rule = mapping("ratelimit_server.*.response_time", "response_time_seconds");
        rule.insert("timer_type".to_owned(), "histogram".to_owned());
        rule.extend(labels(&["grpc_method"]));
        if self.response_time == ResponseTimeUnit::Seconds {
            rule.insert("scale".to_owned(), "0.001".to_owned());
        }
        rule
    }
}

fn mapping(pattern: &str, name: &str) -> MappingRule {
    let keys = [("match", pattern.to_owned()), ("name", format!("ratelimit_service_{name}"))];
    keys.map(|(key, value)| (key.to_owned(), value)).into()
}

/// A counter of the rules of a rate limit.
fn of_rules(pattern: &str, counter: &str) -> MappingRule {
    let mut rule = mapping(pattern, &format!("rate_limit_{counter}"));
    rule.insert("timer_type".to_owned(), "histogram".to_owned());
    rule
}

fn counter(pattern: &str, name: &str, names: &[&str]) -> MappingRule {
    let mut rule = mapping(pattern, name);
    rule.insert("match_metric_type".to_owned(), "counter".to_owned());
    rule.extend(labels(names));
    rule
}

/// The labels, each from the group of its place.
fn labels(names: &[&str]) -> MappingRule {
    let label = |(place, name): (usize, &&str)| (format!("labels.{name}"), format!("${}", place + 1));
    names.iter().enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of a mapping, in a layout of its own.
    fn text(known: &KnownMapping) -> String {
        let rules = known.rules().into_iter().map(|rule| {
            let (labels, keys): (MappingRule, MappingRule) =
                rule.into_iter().partition(|(name, _)| name.starts_with("labels."));
            let mut text: String =
                keys.iter().map(|(name, value)| format!("    {name}: '{value}'\n")).collect();
            if !labels.is_empty() {
                let label = |(name, value): (&String, &String)| {
                    format!("{}: \"{value}\"", name.trim_start_matches("labels."))
                };
                let labels: Vec<_> = labels.iter().map(label).collect();
                text.push_str(&format!("    labels: {{{}}}\n", labels.join(", ")));
            }
            text.replacen("    ", "  - ", 1)
        });
        format!("# comment\nmappings:\n{}", rules.collect::<String>())
    }

    fn reason(text: &str) -> String {
        recognise(text).expect_err("not known").to_string()
    }

    #[test]
    fn known_mappings_are_recognised_whatever_their_layout() {
        for known in KNOWN {
            let text = text(&known);
            assert_eq!(recognise(&text).expect(&text), known.response_time);
        }
    }

    #[test]
    fn a_mapping_with_another_rule_is_refused_with_its_line() {
        let known = text(&KNOWN[0]);
        let added = reason(&format!("{known}  - match: my.*\n    name: mine\n"));
        let line = known.lines().count() + 1;
        assert!(added.starts_with(&format!("line {line}: the rule for \"my.*\" is not one")), "{added}");
        let changed = reason(&known.replace("ratelimit_service_total_requests", "requests"));
        assert!(changed.contains(": the rule for \"ratelimit_server.*.total_requests\" is not"), "{changed}");
        let (cut, _) = known.rsplit_once("  - ").expect("several rules");
        assert_eq!(reason(cut), "it has 14 rules, and the mapping of envoyproxy/ratelimit has 15");
        assert_eq!(reason("a: 1\n"), "it has more, or less, than a list `mappings`");
        assert!(reason("mappings: [").starts_with("line 2: "));
    }

    #[test]
    fn a_missing_file_is_the_built_in_mapping() {
        let unit = response_time(Path::new("/nowhere/conf.yaml"), ResponseTimeUnit::Seconds);
        assert_eq!(unit.expect("not an error"), ResponseTimeUnit::Seconds);
        let unreadable = response_time(Path::new("/"), ResponseTimeUnit::Seconds);
        assert!(unreadable.is_err(), "a directory");
    }
}
