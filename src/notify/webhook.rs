//! Sends a message to its receiver, signed as [Standard Webhooks](https://www.standardwebhooks.com) describes.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use base::clock::Clock;
use base::on_blocking_thread;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::Bytes;
use sha2::Sha256;
use tls::{ClientConnector, ClientTls, ClientTlsError, FileError, Protocol, read_secret};
use tokio::time::timeout;

use super::WebhookOptions;

const PREFIX: &str = "whsec_";
const MIN_SECRET_BYTES: usize = 24;
/// Longest `Retry-After` that is respected.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(64);

/// The key of the signatures. Never displayed.
pub struct Secret(Vec<u8>);

#[derive(Clone)]
pub struct Webhook {
    options: WebhookOptions,
    /// `None`: clear text.
    tls: Option<ClientConnector>,
}

/// Why an attempt failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// `true` if another attempt may succeed.
    pub(super) is_temporary: bool,
    /// Wait at least this long.
    pub(super) retry_after: Option<Duration>,
}

impl Secret {
    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let expected = format!("{PREFIX}, then base64 of at least {MIN_SECRET_BYTES} bytes");
        read_secret(path, &expected, |line| {
            let bytes = STANDARD.decode(line.strip_prefix(PREFIX)?).ok()?;
            (bytes.len() >= MIN_SECRET_BYTES).then_some(Self(bytes))
        })
    }

    /// The value of the header `webhook-signature`.
    fn signature(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let mut mac: Hmac<Sha256> = Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("receiver", &self.receiver()).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Reads the CAs, if the URL has TLS. Blocks on the file system.
    ///
    /// # Errors
    /// If the CAs are invalid.
    pub fn new(options: WebhookOptions) -> Result<Self, ClientTlsError> {
        let tls = ClientTls { ca_file: options.ca_file.clone(), ..ClientTls::default() };
        let tls = options.target.has_tls.then(|| tls.read_files(Some(Protocol::Http1))).transpose()?;
        Ok(Self { options, tls })
    }

    /// Host and port.
    pub(super) fn receiver(&self) -> String {
        self.options.target.authority()
    }

    /// Makes one attempt, with the file's current secret.
    pub(super) async fn send(&self, id: &str, body: &[u8], clock: &dyn Clock) -> Result<(), Failure> {
        let attempt = timeout(self.options.timeout, self.attempt(id, body, clock)).await;
        attempt.unwrap_or_else(|_late| Err(Failure::temporary("no answer in time")))
    }

    async fn attempt(&self, id: &str, body: &[u8], clock: &dyn Clock) -> Result<(), Failure> {
        let WebhookOptions { target, .. } = &self.options;
        let options = self.options.clone();
        let secret = on_blocking_thread(move || options.secret()).await.map_err(Failure::temporary)?;
        let timestamp_s = clock.now_us() / 1_000_000;
        let signature = secret.signature(id, timestamp_s, body);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let texts = [
            ("webhook-id", id),
            ("webhook-timestamp", &timestamp_s.to_string()),
            ("webhook-signature", &signature),
        ];
        for (name, text) in texts {
            headers.insert(name, HeaderValue::try_from(text).map_err(Failure::temporary)?);
        }
        let body = Bytes::copy_from_slice(body);
        let answer = target.post(self.tls.as_ref(), headers, body).await.map_err(Failure::temporary)?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(Failure::of_answer(answer.status(), answer.headers()))
        }
    }
}

impl Failure {
    fn temporary(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), is_temporary: true, retry_after: None }
    }

    fn of_answer(status: StatusCode, headers: &HeaderMap) -> Self {
        let seconds = || headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok();
        let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
        let wait = Some(()).filter(|()| is_busy).and_then(|()| seconds()).map(Duration::from_secs);
        Self {
            reason: format!("the receiver answers {status}"),
            is_temporary: is_busy || status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT,
            retry_after: wait.map(|wait: Duration| wait.min(LONGEST_WAIT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Secret, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("room for a few bytes");
        let shown = format!("{}: ", file.path().display());
        Secret::read(file.path()).map_err(|error| error.to_string().replace(&shown, ""))
    }

    /// The example of the Standard Webhooks' own libraries.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let secret = from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("a secret");
        let signature =
            secret.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(!format!("{secret:?}").contains("MfKQ"));
    }

    #[test]
    fn a_secret_is_24_bytes_in_base64_after_its_prefix() {
        let encoded = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        let bad = "the first line must have whsec_, then base64 of at least 24 bytes".to_owned();
        for text in
            [encoded(23), encoded(24)[6..].to_owned(), "whsec_".to_owned(), format!("{}%", encoded(24))]
        {
            assert_eq!(from_text(&text).map(|_| ()), Err(bad.clone()), "{text}");
        }
        from_text(&encoded(24)).expect("a secret");
        from_text(&format!("{}\r\nmore\n", encoded(64))).expect("a secret");
    }

    #[test]
    fn only_busy_or_broken_receivers_are_asked_again() {
        let table = [
            // (status, Retry-After, whether it is temporary, seconds to wait)
            (400, None, false, None),
            (301, None, false, None),
            (401, Some("5"), false, None),
            (408, None, true, None),
            (410, None, false, None),
            (429, Some("7"), true, Some(7)),
            (429, Some("3600"), true, Some(64)),
            (429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), true, None),
            (500, Some("7"), true, None),
            (503, Some("0"), true, Some(0)),
            (504, None, true, None),
        ];
        for (status, retry_after, is_temporary, wait_s) in table {
            let header = retry_after.map(|text| (RETRY_AFTER, HeaderValue::from_static(text)));
            let status = StatusCode::from_u16(status).expect("a status");
            let failure = Failure::of_answer(status, &header.into_iter().collect());
            let wait = wait_s.map(Duration::from_secs);
            assert_eq!((failure.is_temporary, failure.retry_after), (is_temporary, wait), "{status}");
        }
    }
}
