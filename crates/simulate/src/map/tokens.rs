//! Splits an expression into words, numbers, texts and operators.

/// One token of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A field, or a word such as `and`.
    Word(String),
    Text(String),
    Number(u64),
    Operator(&'static str),
}

/// The longer ones first: `<=` is not `<` and `=`.
const OPERATORS: [&str; 8] = ["==", "!=", "<=", ">=", "<", ">", "(", ")"];

/// The tokens of `text`, or why it has none.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
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
