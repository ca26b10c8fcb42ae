//! Recognises requests that a browser sends for a web page. Any page can send requests to any address that the browser
//! can reach, including loopback; the browser only hides the answers from it. The browser itself sets the headers
//! `Origin` and `Sec-Fetch-Site`, and a page cannot change them.

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, header};

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a port that no page needs refuses a call.
pub(crate) const NO_PAGES: &str = "the port does not answer web pages (Origin or Sec-Fetch-Site header)";

/// The web page that sent a request, by its headers. Ordered: the most foreign is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SendingPage {
    /// No page: a program, or a user who typed the address into a browser.
    None,
    /// A page of the host and port to which the request goes.
    Own,
    /// A page of any other origin, also of another port of the same host.
    Foreign,
}

impl SendingPage {
    /// `host`: host and port to which the request goes, if known.
    ///
    /// `Origin` is in every POST of a page. `Sec-Fetch-Site` is in its GETs as well, but only on loopback and with TLS.
    pub(crate) fn of_request(headers: &HeaderMap, host: Option<&Authority>) -> Self {
        let origins = headers.get_all(header::ORIGIN).iter().map(|origin| page_from_origin(origin, host));
        let sites = headers.get_all(SEC_FETCH_SITE).iter().map(page_from_site);
        origins.chain(sites).max().unwrap_or(Self::None)
    }
}

/// A page that hides its origin sends `null`, so it counts as foreign.
fn page_from_origin(origin: &HeaderValue, host: Option<&Authority>) -> SendingPage {
    let authority = origin.to_str().ok().and_then(|origin| {
        let (scheme, authority) = origin.split_once("://")?;
        ["http", "https"].contains(&scheme).then_some(authority)
    });
    match (authority, host) {
        (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host.as_str()) => SendingPage::Own,
        _ => SendingPage::Foreign,
    }
}

fn page_from_site(site: &HeaderValue) -> SendingPage {
    match site.as_bytes() {
        b"none" => SendingPage::None,
        b"same-origin" => SendingPage::Own,
        _ => SendingPage::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_page_is_recognised_by_the_headers_that_it_cannot_change() {
        let host = Authority::from_static("localhost:6070");
        let (origin, site) = (header::ORIGIN, SEC_FETCH_SITE);
        let table: [(&[(HeaderName, &str)], SendingPage); 15] = [
            (&[], SendingPage::None),
            (&[(site.clone(), "none")], SendingPage::None),
            (&[(site.clone(), "same-origin")], SendingPage::Own),
            (&[(site.clone(), "same-site")], SendingPage::Foreign), // another port of localhost
            (&[(site.clone(), "cross-site")], SendingPage::Foreign),
            (&[(site.clone(), "in-future")], SendingPage::Foreign),
            (&[(origin.clone(), "http://localhost:6070")], SendingPage::Own),
            (&[(origin.clone(), "https://LOCALHOST:6070")], SendingPage::Own), // behind a proxy with TLS
            (&[(origin.clone(), "http://localhost:3000")], SendingPage::Foreign),
            (&[(origin.clone(), "http://localhost")], SendingPage::Foreign),
            (&[(origin.clone(), "http://evil.example")], SendingPage::Foreign),
            (&[(origin.clone(), "null")], SendingPage::Foreign),
            (&[(origin.clone(), "localhost:6070")], SendingPage::Foreign),
            (&[(origin.clone(), "moz-extension://localhost:6070")], SendingPage::Foreign),
            (&[(origin.clone(), "http://localhost:6070"), (site, "cross-site")], SendingPage::Foreign),
        ];
        for (pairs, sender) in table {
            assert_eq!(SendingPage::of_request(&headers(pairs), Some(&host)), sender, "{pairs:?}");
        }
        let own = headers(&[(origin, "http://localhost:6070")]);
        assert_eq!(SendingPage::of_request(&own, None), SendingPage::Foreign, "the own host is not known");
    }
}
