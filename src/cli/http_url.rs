//! The address of a running service: `host:port` or `http://host:port`.

use http::Uri;

/// Parses the address of a service.
///
/// # Errors
/// A sentence for the user, for any other scheme and for text without a host.
pub(super) fn parse_http_url(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(_)) => Ok(uri),
        (Some("https"), _) => {
            Err("TLS is not supported: use http://host:port, or a proxy that adds TLS".to_owned())
        }
        _ => Err("expected host:port or http://host:port".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_is_accepted() {
        let cases = [
            // (written, authority)
            ("localhost:6070", Ok("localhost:6070")),
            ("127.0.0.1:8081", Ok("127.0.0.1:8081")),
            ("http://[::1]:6070", Ok("[::1]:6070")),
            ("http://ratelimit", Ok("ratelimit")),
            ("https://localhost", Err("TLS is not supported")),
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
