//! Parses the conditions of a map. `or` binds weakest, then `and`, then `not`; parentheses group.

use std::iter::Peekable;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::vec;

use super::expression::{Expression, FieldUses, NumberBounds, TextTest};

/// Deeper nesting is a mistake, and each level uses stack.
const MAX_DEPTH: usize = 50;

/// Parses `text`, written on `line` of a map, and adds the fields that it uses to `fields`.
pub(crate) fn parse_expression(text: &str, line: u32, fields: &mut FieldUses) -> Result<Expression, String> {
    let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable(), line, fields, depth: 0 };
    let expression = parser.parse_or()?;
    match parser.tokens.next() {
        None => Ok(expression),
        Some(token) => {
            Err(format!("{} is not expected here; join conditions by 'and' or 'or'", shown(&token)))
        }
    }
}

struct Parser<'f> {
    tokens: Peekable<vec::IntoIter<Token>>,
    line: u32,
    fields: &'f mut FieldUses,
    depth: usize,
}

fn shown(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("'{word}'"),
        Token::Text(text) => format!("the text \"{text}\""),
        Token::Number(number) => format!("the number {number}"),
        Token::Operator(operator) => format!("'{operator}'"),
    }
}

impl Parser<'_> {
    fn parse_or(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.parse_and()?];
        while self.takes_word("or") {
            parts.push(self.parse_and()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Or(parts) })
    }

    fn parse_and(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.parse_not()?];
        while self.takes_word("and") {
            parts.push(self.parse_not()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::And(parts) })
    }

    fn parse_not(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels of parentheses and 'not'"));
        }
        let parsed = if self.takes_word("not") {
            Expression::Not(Box::new(self.parse_not()?))
        } else if self.tokens.next_if_eq(&Token::Operator("(")).is_some() {
            let inner = self.parse_or()?;
            self.tokens.next_if_eq(&Token::Operator(")")).ok_or("a '(' has no ')'")?;
            inner
        } else {
            self.parse_comparison()?
        };
        self.depth -= 1;
        Ok(parsed)
    }

    fn takes_word(&mut self, word: &str) -> bool {
        self.tokens.next_if(|token| matches!(token, Token::Word(found) if found == word)).is_some()
    }

    fn parse_comparison(&mut self) -> Result<Expression, String> {
        let name = match self.tokens.next() {
            Some(Token::Word(name)) => name,
            Some(token) => return Err(format!("expected a field, found {}", shown(&token))),
            None => return Err("expected a field at the end".to_owned()),
        };
        let field = self.fields.index(&name, self.line);
        let test = match self.tokens.next() {
            Some(Token::Operator(operator)) => operator.to_owned(),
            Some(Token::Word(word)) => word,
            Some(token) => {
                return Err(format!("expected an operator after '{name}', found {}", shown(&token)));
            }
            None => return Err(format!("expected an operator after '{name}', such as '{name} exists'")),
        };
        if test == "exists" {
            return Ok(Expression::Present(field));
        }
        let value = self.tokens.next().ok_or_else(|| format!("expected a value after '{name} {test}'"))?;
        let text = match &value {
            Token::Text(text) | Token::Word(text) => text.clone(),
            Token::Number(number) => number.to_string(),
            Token::Operator(_) => return Err(format!("{} follows '{name} {test}'", shown(&value))),
        };
        // `!=` holds if `==` does not, so also without the field.
        let (compared, is_negated) = if test == "!=" { ("==", true) } else { (test.as_str(), false) };
        let comparison = match number_bounds(compared, &value) {
            Some(bounds) => Expression::Number(field, bounds),
            None => Expression::Text(field, text_test(compared, &value)?, text),
        };
        Ok(if is_negated { Expression::Not(Box::new(comparison)) } else { comparison })
    }
}

/// The numbers for which a comparison with `value` holds; `None` if it does not compare numbers.
fn number_bounds(operator: &str, value: &Token) -> Option<NumberBounds> {
    let Token::Number(whole) = *value else { return None };
    let number = (whole, false);
    Some(match operator {
        "==" => (Included(number), Included(number)),
        "<" => (Unbounded, Excluded(number)),
        "<=" => (Unbounded, Included(number)),
        ">" => (Excluded(number), Unbounded),
        ">=" => (Included(number), Unbounded),
        _ => return None,
    })
}

fn text_test(operator: &str, value: &Token) -> Result<TextTest, String> {
    Ok(match operator {
        "==" => TextTest::Equal,
        "starts_with" => TextTest::StartsWith,
        "ends_with" => TextTest::EndsWith,
        "contains" => TextTest::Contains,
        "has" => TextTest::Has,
        "<" | "<=" | ">" | ">=" => {
            return Err(format!("'{operator}' compares numbers, found {}", shown(value)));
        }
        _ => {
            return Err(format!(
                "'{operator}' is not an operator; operators are == != <= >= < > starts_with ends_with contains has exists"
            ));
        }
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A field, or a word such as `and`.
    Word(String),
    Text(String),
    Number(u64),
    Operator(&'static str),
}

/// Longer ones first: `<=` is not `<` and `=`.
const OPERATORS: [&str; 8] = ["==", "!=", "<=", ">=", "<", ">", "(", ")"];

/// Splits `text` into tokens, or says why it cannot.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if let Some(operator) = OPERATORS.into_iter().find(|op| rest.starts_with(op)) {
            (Token::Operator(operator), operator.len())
        } else if first == '"' || first == '\'' {
            let inside = &rest[1..];
            let end = inside.find(first).ok_or_else(|| format!("the text {rest} has no closing quote"))?;
            (Token::Text(inside[..end].to_owned()), end + 2)
        } else {
            let is_end = |c: char| c.is_whitespace() || "()<>=!\"'".contains(c);
            let end = rest.find(is_end).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("'{first}' is not an operator; operators are == != <= >= < >"));
            }
            (word(&rest[..end]), end)
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

fn word(text: &str) -> Token {
    text.parse().map_or_else(|_| Token::Word(text.to_owned()), Token::Number)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::values::Selected;

    fn holds(text: &str) -> Result<bool, String> {
        let mut fields = FieldUses::default();
        let expression = parse_expression(text, 1, &mut fields)?;
        let line: Selected<'_> = fields
            .names()
            .map(|name| match name {
                "code" => Some(Cow::Borrowed("429")),
                "flags" => Some(Cow::Borrowed("RL,UF")),
                "path" => Some(Cow::Borrowed("/api/v1")),
                "time" => Some(Cow::Borrowed("1.75")),
                "address" => Some(Cow::Borrowed("10.0.0.1")),
                _ => None,
            })
            .collect();
        Ok(expression.holds(&line))
    }

    #[test]
    fn conditions_hold_as_they_read() {
        let table = [
            ("code < 400", false),
            ("code >= 400 and code < 500", true),
            ("code == 429 or code == 503", true),
            ("code == \"429\"", true),
            ("code != 429", false),
            ("flags has RL", true),
            ("flags has R", false),
            ("not flags has UF", false),
            ("path starts_with /api", true),
            ("path ends_with \"v1\" and path contains '/api/'", true),
            ("code == 1 or code == 429 and path == /x", false),
            ("(code == 1 or code == 429) and path != /x", true),
            ("missing == 1", false),
            ("missing != 1", true),
            ("missing != abc", true),
            ("missing exists or code exists", true),
            ("time > 1 and time >= 1 and time < 2 and time <= 2", true),
            ("time == 1 or time <= 1 or time >= 2", false),
            ("address >= 10", false),
            ("path > 1", false),
        ];
        for (text, expected) in table {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named() {
        let table = [
            ("", "expected a field"),
            ("code", "expected an operator"),
            ("code <", "expected a value"),
            ("code < abc", "compares numbers"),
            ("code = 4", "not an operator"),
            ("code like 4", "'like' is not an operator"),
            ("(code == 4", "has no ')'"),
            ("code == 4 path == 5", "join conditions"),
            ("\"code\" == 4", "expected a field, found"),
            ("path == \"x", "no closing quote"),
            ("code == ==", "follows 'code =='"),
        ];
        for (text, expected) in table {
            let reason = holds(text).expect_err(text);
            assert!(reason.contains(expected), "{text}: {reason}");
        }
        assert!(holds(&"(".repeat(100_000)).is_err(), "bounded depth");
    }
}
