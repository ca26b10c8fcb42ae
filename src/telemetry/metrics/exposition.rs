//! The text exposition format of Prometheus, for the counters that are not in the registry.

/// Counters with the same name.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
}

impl CounterFamily {
    /// Writes the family with its series. A series is its labels, from [`labels`], and its value.
    pub(super) fn write(&self, text: &mut String, series: impl Iterator<Item = (String, u64)>) {
        let Self { name, help } = self;
        // A family without series is written too, so that its name can be found before it counts.
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} counter\n"));
        for (labels, value) in series {
            text.push_str(&format!("{name}{{{labels}}} {value}\n"));
        }
    }
}

/// Labels in the given order, as they stand between the braces.
pub(super) fn labels<const N: usize>(pairs: [(&str, &str); N]) -> String {
    pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(",")
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_in_the_exposition_format() {
        let family = CounterFamily { name: "hits_total", help: "Hits" };
        let mut text = String::new();
        family.write(&mut text, std::iter::empty());
        assert_eq!(text, "# HELP hits_total Hits\n# TYPE hits_total counter\n");
        let series = [(labels([("a", "x"), ("b", "")]), 7), (labels([("a", "line\n\"1\\2\"")]), u64::MAX)];
        family.write(&mut text, series.into_iter());
        let lines: Vec<_> = text.lines().skip(4).collect();
        assert_eq!(
            lines,
            [r#"hits_total{a="x",b=""} 7"#, r#"hits_total{a="line\n\"1\\2\""} 18446744073709551615"#]
        );
    }
}
