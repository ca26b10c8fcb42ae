//! Finds rule values that are valid but were probably meant as regular expressions, path templates or networks. Values
//! are compared as plain strings, in which only `*` is special.

use std::net::IpAddr;

/// What a value looks like, and what to write instead; `None` for ordinary values.
pub(super) fn mistyped_reason(value: &str) -> Option<String> {
    network_reason(value).or_else(|| expression_reason(value)).or_else(|| template_reason(value))
}

fn network_reason(value: &str) -> Option<String> {
    let (address, bits) = value.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let max_bits = if address.is_ipv4() { 32 } else { 128 };
    if bits > max_bits {
        return None;
    }
    let wildcard = wildcard_of(address, bits).map(|text| format!(", or write '{text}'")).unwrap_or_default();
    Some(format!(
        "'{value}' is a network, but a value is compared as text, so it matches no address; name the network in a row \
         of exceptions.path{wildcard}"
    ))
}

/// The wildcard with the same addresses, which exists if an IPv4 network ends between two numbers.
fn wildcard_of(address: IpAddr, bits: u8) -> Option<String> {
    let IpAddr::V4(address) = address else { return None };
    let numbers = address.octets();
    match bits {
        8 => Some(format!("{}.*", numbers[0])),
        16 => Some(format!("{}.{}.*", numbers[0], numbers[1])),
        24 => Some(format!("{}.{}.{}.*", numbers[0], numbers[1], numbers[2])),
        _ => None,
    }
}

fn expression_reason(value: &str) -> Option<String> {
    if !is_like_expression(value) {
        return None;
    }
    let instead = match as_wildcard(value) {
        Some(wildcard) => format!("write '{wildcard}'"),
        None => "write one descriptor for each value, or a wildcard such as '/api/*'".to_owned(),
    };
    Some(format!(
        "'{value}' looks like a regular expression, but a value is compared as text and only '*' stands for any text; \
         {instead}"
    ))
}

/// `true` if the value shows a regular expression by a sign that is rare in paths, names, addresses and user agents.
fn is_like_expression(value: &str) -> bool {
    let has_anchor = value.len() > 1
        && (value.starts_with('^') || value.ends_with('$') && value.starts_with(['/', '.', '(', '[']));
    has_anchor || has_any_text(value) || has_escape(value) || has_class(value) || has_group(value)
}

/// `.*` or `.+` where names cannot have them: alone, after `/`, or `.+` at the end or before `/`.
fn has_any_text(value: &str) -> bool {
    let repeats = |text: &str| text.starts_with(".*") || text.starts_with(".+");
    let after_slash = value.match_indices('/').any(|(at, _)| repeats(&value[at + 1..]));
    repeats(value) && (value.len() == 2 || value[2..].starts_with(['/', '$']))
        || after_slash
        || value.ends_with(".+")
        || value.contains(".+/")
}

/// `\.`, `\/`, `\d+`: a backslash before a sign, or before a class letter without another letter after it.
fn has_escape(value: &str) -> bool {
    value.match_indices('\\').any(|(at, _)| {
        let mut after = value[at + 1..].chars();
        match (after.next(), after.next()) {
            (Some('.' | '/' | '-' | '?' | '+' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$'), _) => true,
            (Some('d' | 'D' | 'w' | 'W' | 's' | 'S'), next) => {
                next.is_none_or(|next| !next.is_alphanumeric())
            }
            _ => false,
        }
    })
}

/// `[a-z]`, `[0-9]` or `[^/]`. An IPv6 address in brackets has no `-`.
fn has_class(value: &str) -> bool {
    value.match_indices('[').any(|(at, _)| {
        let Some((class, _)) = value[at + 1..].split_once(']') else { return false };
        let letters: Vec<char> = class.chars().collect();
        let is_range = |three: &[char]| {
            three[1] == '-' && three[0].is_ascii_alphanumeric() && three[2].is_ascii_alphanumeric()
        };
        class.starts_with('^') || letters.windows(3).any(is_range) && letters.len() <= 12
    })
}

/// `(a|b)`, or `(?`, which starts options and groups.
fn has_group(value: &str) -> bool {
    value.match_indices('(').any(|(at, _)| {
        let Some((group, _)) = value[at + 1..].split_once(')') else { return false };
        group.starts_with('?') || group.contains('|') && !group.contains(' ')
    })
}

/// The expression as a wildcard, if a wildcard can express all its signs.
fn as_wildcard(value: &str) -> Option<String> {
    let inner = value.strip_prefix('^').unwrap_or(value);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    let text = inner.replace(".*", "*").replace(".+", "*").replace("\\.", ".").replace("\\/", "/");
    let is_plain =
        !text.is_empty() && !text.contains(['\\', '^', '$', '(', ')', '[', ']', '|', '+', '?', '{']);
    is_plain.then_some(text)
}

fn template_reason(value: &str) -> Option<String> {
    if !value.contains('/') {
        return None;
    }
    let mut has_parameter = false;
    let parts = value.split('/').map(|part| {
        let is_first_of_name = part.len() == value.len();
        if is_parameter(part) && !is_first_of_name {
            has_parameter = true;
            "*"
        } else {
            part
        }
    });
    let wildcard = parts.collect::<Vec<_>>().join("/");
    has_parameter.then(|| {
        format!(
            "'{value}' looks like a template of paths, but a value is compared as text, so it matches no real path; \
             write '{wildcard}', with share_threshold: true for one counter of all these paths"
        )
    })
}

/// A part of a path such as `{id}`, `:id` or `<id>`.
fn is_parameter(part: &str) -> bool {
    let enclosed =
        |open: char, close: char| part.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let name = enclosed('{', '}').or_else(|| enclosed('<', '>')).or_else(|| part.strip_prefix(':'));
    let is_name_letter =
        |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '+' | '*' | ':' | '.');
    name.is_some_and(|name| {
        name.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && name.chars().all(is_name_letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_another_language_get_a_reason_with_a_replacement() {
        let table = [
            // value, a piece of the reason
            ("10.0.0.0/8", "or write '10.*'"),
            ("192.168.0.0/16", "or write '192.168.*'"),
            ("192.0.2.0/24", "or write '192.0.2.*'"),
            ("192.0.2.7/32", "is a network"),
            ("172.16.0.0/12", "in a row of exceptions.path"),
            ("2001:db8::/32", "in a row of exceptions.path"),
            ("^/api/.*", "write '/api/*'"),
            ("^/api/.*$", "write '/api/*'"),
            ("/api/.*", "write '/api/*'"),
            ("/api/.+/items", "write '/api/*/items'"),
            ("/api/users$", "write '/api/users'"),
            (".*", "write '*'"),
            (r"^example\.com$", "write 'example.com'"),
            (r"/users/\d+", "one descriptor for each value"),
            ("/users/[0-9]+", "one descriptor for each value"),
            ("/files/[^/]+", "one descriptor for each value"),
            ("/(login|logout)", "one descriptor for each value"),
            ("(?i)bot", "one descriptor for each value"),
            ("/users/{id}", "write '/users/*', with share_threshold"),
            ("/users/{id}/orders/{order_id}", "write '/users/*/orders/*'"),
            ("/users/:id", "write '/users/*'"),
            ("/users/<int:id>", "write '/users/*'"),
            ("GET /users/{id}", "write 'GET /users/*'"),
            ("/{proxy+}", "write '/*'"),
        ];
        for (value, piece) in table {
            let reason = mistyped_reason(value).unwrap_or_else(|| panic!("no reason for {value}"));
            assert!(reason.contains(piece), "{value}: {reason}");
        }
    }

    #[test]
    fn usual_values_get_no_reason() {
        let table = [
            "",
            "*",
            "/",
            "/api/*",
            "/api/*/items",
            "/files/*.tar.gz",
            "api.*",
            "*.example.com",
            "/v1.*",
            "10.0.0.1",
            "10.0.0.*",
            "2001:db8::1",
            "[2001:db8::1]:443",
            "10.0.0.0/33",
            "1/2",
            "user@example.com",
            "/a?x=1&y[]=2",
            "C++",
            "$default",
            "price$",
            "^",
            r"CORP\dan",
            r"CORP\bob",
            r"\\server\share",
            "Mozilla/5.0 (X11; Linux x86_64; rv:1.0) Gecko/20100101",
            "Mozilla/5.0 (compatible; a|b bot; +https://example.com/bot)",
            "tenant|user",
            "text/html",
            "http://example.com/x",
            "urn:isbn:0451450523",
            "a{b}",
            "{id}",
            "/users/{id",
            "/users/:",
            "/a:b/c",
            "/12:30/x",
            "/:8080",
            "[draft] text",
        ];
        for value in table {
            assert_eq!(mistyped_reason(value), None, "{value}");
        }
    }
}
