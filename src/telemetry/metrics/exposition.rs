//! The text exposition format of Prometheus, for the metrics that are not in the registry.

use std::fmt::{Display, Write as _};

/// Text in the exposition format.
#[derive(Debug)]
pub(crate) struct Exposition<'e> {
    text: String,
    /// The labels of every series, from [`labels`].
    extra_labels: &'e str,
}

impl<'e> Exposition<'e> {
    /// Continues `text`.
    pub(super) fn new(text: String, extra_labels: &'e str) -> Self {
        Self { text, extra_labels }
    }

    /// Starts a family. One without series is written too, so that its name can be found before it counts.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// Adds a series to the family. `labels` are from [`labels`].
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let extra = self.extra_labels;
        let all = match (labels.is_empty(), extra.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!("{{{labels}}}"),
            (true, false) => format!("{{{extra}}}"),
            (false, false) => format!("{{{labels},{extra}}}"),
        };
        self.line(format_args!("{name}{all} {value}"));
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a String takes any text");
    }
}

/// Labels in the given order, as they stand between the braces.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    pairs.collect::<Vec<_>>().join(",")
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_in_the_exposition_format() {
        let mut exposition = Exposition::new(String::new(), "");
        exposition.family("hits_total", "counter", "Hits");
        exposition.sample("hits_total", &labels(&[("a", "x"), ("b", "")]), 7);
        exposition.sample("hits_total", &labels(&[("a", "line\n\"1\\2\"")]), u64::MAX);
        exposition.sample("hits_total", "", 0);
        let lines = [
            "# HELP hits_total Hits",
            "# TYPE hits_total counter",
            r#"hits_total{a="x",b=""} 7"#,
            r#"hits_total{a="line\n\"1\\2\""} 18446744073709551615"#,
            "hits_total 0",
        ];
        assert_eq!(exposition.into_text().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn every_series_has_the_extra_labels() {
        let extra = labels(&[("env", "prod")]);
        let mut exposition = Exposition::new(String::new(), &extra);
        exposition.sample("hits_total", &labels(&[("a", "x")]), 1);
        exposition.sample("hits_total", "", 2);
        assert_eq!(
            exposition.into_text(),
            "hits_total{a=\"x\",env=\"prod\"} 1\nhits_total{env=\"prod\"} 2\n"
        );
    }
}
