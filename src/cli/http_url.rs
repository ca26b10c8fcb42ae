//! The address of a running service: `host:port`, `http://host:port`, or `https://host:port` for TLS.

use http::Uri;

/// Parses the address of a service.
///
/// # Errors
/// A sentence for the user, for any other scheme and for text without a host.
pub(super) fn parse_http_url(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("expected host:port, http://host:port or https://host:port".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_and_https_are_accepted() {
        let cases = [
            // (written, authority)
            ("localhost:6070", Ok("localhost:6070")),
            ("127.0.0.1:8081", Ok("127.0.0.1:8081")),
            ("http://[::1]:6070", Ok("[::1]:6070")),
            ("http://ratelimit", Ok("ratelimit")),
            ("https://localhost:8081", Ok("localhost:8081")),
            ("ftp://localhost", Err("expected host:port")),
            ("", Err("")),
        ];
        for (written, expected) in cases {
            let parsed = parse_http_url(written);
            match (&parsed, expected) {
                (Ok(uri), Ok(authority)) => {
                    assert_eq!(uri.authority().map(|authority| authority.as_str()), Some(authority));
                }
                (Err(error), Err(start)) => assert!(error.starts_with(start), "{error}"),
                _ => panic!("{written}: {parsed:?}"),
            }
        }
    }
}
