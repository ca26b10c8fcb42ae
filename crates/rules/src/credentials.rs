//! Finds rule values that look like credentials. Rule values are public, in metrics, admin pages and counter keys,
//! unless the rule sets `secret: true`.

/// Keys whose values are credentials, compared without case, `-` and `_`.
const SECRET_KEYS: [&str; 12] = [
    "apikey",
    "xapikey",
    "accesstoken",
    "authtoken",
    "refreshtoken",
    "token",
    "authorization",
    "password",
    "passwd",
    "secret",
    "clientsecret",
    "bearer",
];

/// Prefixes of well-known tokens.
const TOKEN_PREFIXES: [&str; 10] =
    ["sk-", "sk_live_", "sk_test_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AKIA", "eyJ"];

/// Shorter values are names such as `anonymous` or `v2`, rather than credentials.
const SHORTEST_SECRET: usize = 12;

/// `true` if an entry looks like a credential. A wildcard does not: it lacks part of the value.
pub fn is_like_credential(key: &str, value: &str) -> bool {
    if value.contains('*') {
        return false;
    }
    let value = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("Basic ")).unwrap_or(value);
    if value.len() < SHORTEST_SECRET {
        return false;
    }
    let is_token = TOKEN_PREFIXES.iter().any(|prefix| value.starts_with(prefix));
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let is_secret_key = SECRET_KEYS.contains(&key.to_ascii_lowercase().as_str());
    let has = |kind: fn(&char) -> bool| value.chars().any(|c| kind(&c));
    // Words are not credentials, and digits alone are client numbers.
    let is_mixed = has(char::is_ascii_digit) && has(char::is_ascii_alphabetic);
    is_mixed && (is_token || is_secret_key)
}

/// The name of a node with a secret value, for messages.
pub(super) fn without_value(key: &str) -> String {
    format!("{key}_(secret)")
}

#[cfg(test)]
mod tests {
    use super::is_like_credential;

    #[test]
    fn credentials_are_told_from_names() {
        let table = [
            // key, value, looks like a credential
            ("api_key", "sk-4f8a0c1b9d2e7f6a", true),
            ("X-API-Key", "4f8a0c1b9d2e7f6a", true),
            ("authorization", "Bearer eyJhbGciOiJIUzI1NiJ9.e30.x1", true),
            ("client", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", true),
            ("api_key", "sk-*", false),
            ("api_key", "", false),
            ("api_key", "free", false),
            ("token", "anonymous-clients", false),
            ("tenant", "4f8a0c1b9d2e7f6a", false),
            ("path", "/v1/users/0123456789", false),
        ];
        for (key, value, expected) in table {
            assert_eq!(is_like_credential(key, value), expected, "{key}={value}");
        }
    }
}
