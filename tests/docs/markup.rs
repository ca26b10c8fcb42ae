//! HTML and SVG as text, in which data cannot become markup.
//!
//! Templates are constants of the program, and everything that is filled in is escaped. Knows nothing of what is drawn.

use std::fmt::{self, Display, Write};

use base::is_hostile;

/// HTML or SVG under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup(String);

impl Markup {
    /// Appends a constant as it is.
    pub fn raw(&mut self, constant: &'static str) -> &mut Self {
        self.0.push_str(constant);
        self
    }

    /// Appends `template` with each `{}` replaced by the next value, escaped for text and for quoted attributes.
    ///
    /// # Panics
    ///
    /// If there are more or fewer values than `{}`.
    pub fn fill(&mut self, template: &'static str, values: &[&dyn Display]) -> &mut Self {
        let places = template.matches("{}").count();
        assert_eq!(places, values.len(), "a value for each place of {template:?}");
        let mut parts = template.split("{}");
        self.0.push_str(parts.next().unwrap_or_default());
        for (part, value) in parts.zip(values) {
            write!(Escaped(&mut self.0), "{value}").expect("a String takes any text");
            self.0.push_str(part);
        }
        self
    }

    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // No HTML or XML text may have control characters, not even as a reference; others turn the line.
                hostile if is_hostile(hostile) && hostile != '\n' => self.0.push('\u{fffd}'),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_templates_are_not() {
        let mut markup = Markup::default();
        markup.raw("<p>").fill("<b title=\"{}\">{}</b>", &[&"\"'>", &"<script>&\0\u{1b}[1m"]);
        let expected = "<p><b title=\"&quot;&#39;&gt;\">&lt;script&gt;&amp;\u{fffd}\u{fffd}[1m</b>";
        assert_eq!(markup.into_text(), expected);
    }

    #[test]
    fn a_value_with_braces_is_no_place() {
        let mut markup = Markup::default();
        markup.fill("{}-{}", &[&"{}", &1]);
        assert_eq!(markup.into_text(), "{}-1");
    }

    #[test]
    #[should_panic(expected = "a value for each place")]
    fn a_missing_value_is_a_defect() {
        Markup::default().fill("{} {}", &[&1]);
    }
}
