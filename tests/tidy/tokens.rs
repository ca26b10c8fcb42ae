//! Rust source as a list of names and marks. Comments, strings, characters and lifetimes are left out.

/// A name, a number or a single mark, and its line.
#[derive(Clone, Debug)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub fn is_name(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

pub fn tokens(text: &str) -> Vec<Token> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let length = length(rest, first);
        let (token, tail) = rest.split_at(length);
        let is_word = first.is_alphanumeric() || first == '_';
        let is_mark = length == 1 && first.is_ascii_punctuation();
        if is_mark || (is_word && !token.contains(['"', '\''])) {
            found.push(Token { text: token.trim_start_matches("r#").to_owned(), line });
        }
        line += token.matches('\n').count();
        rest = tail;
    }
    found
}

/// How many bytes the next token, comment or blank takes.
fn length(rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |at| at + 2);
    }
    if let Some(length) = raw_string(rest) {
        return length;
    }
    match first {
        '"' => quoted(rest, '"'),
        '\'' => character(rest),
        'b' if rest.starts_with("b\"") => 1 + quoted(&rest[1..], '"'),
        'b' if rest.starts_with("b'") => 1 + quoted(&rest[1..], '\''),
        'r' if rest.starts_with("r#") => 2 + word(&rest[2..]),
        _ if first.is_alphanumeric() || first == '_' => word(rest),
        _ => first.len_utf8(),
    }
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// `r"..."`, `br#"..."#`.
fn raw_string(rest: &str) -> Option<usize> {
    let start = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = start.len() - start.trim_start_matches('#').len();
    let body = start[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let before = rest.len() - body.len();
    Some(body.find(&close).map_or(rest.len(), |at| before + at + close.len()))
}

/// From one quote to the next that no backslash hides.
fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` and `'\n'`, or the quote and the name of a lifetime.
fn character(rest: &str) -> usize {
    let mut after = rest.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) | (_, Some('\'')) => quoted(rest, '\''),
        _ => 1 + word(&rest[1..]),
    }
}

#[test]
fn only_names_and_marks_are_left() {
    let table = [
        ("a::b", "a : : b"),
        ("a // b\nc /* d\n */ e", "a c e"),
        (r#"f("x \" y", 'z', '\'', b"w", b'v', 1)"#, "f ( , , , , , 1 )"),
        ("r#\"a \" b\"# c r\"d\" br\"e\" f", "c f"),
        ("fn f<'a>(x: &'a str) -> u8", "fn f < > ( x : & str ) - > u8"),
        ("r#type", "type"),
        ("'\"' a '\\u{1F600}' b 'é'", "a b"),
    ];
    for (text, expected) in table {
        let words: Vec<_> = tokens(text).into_iter().map(|token| token.text).collect();
        assert_eq!(words.join(" "), expected, "{text}");
    }
    let lines: Vec<_> = tokens("a\n\"x\ny\" b\n/*\n*/ c").into_iter().map(|token| token.line).collect();
    assert_eq!(lines, [1, 3, 5]);
}
