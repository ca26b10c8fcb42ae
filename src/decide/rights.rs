//! What a caller may do, by its token and its certificate: read, charge, refund, and send limits. Without
//! `server.rights` every caller may do everything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::FindFiles;
use engine::{Caller, Descriptor, Request};
use http::HeaderMap;
use strum::{IntoStaticStr, VariantArray};
use tls::{CertificateFacts, ClientName, FileError};

use super::NoDecision;
use crate::net::token_file::{Token, TokenFile};
use crate::telemetry::metrics::RequestFailure;

/// What a request may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Right {
    /// Descriptors with 0 hits, and `/usage`.
    Read,
    /// Positive hits, renewals, and reported pauses.
    Charge,
    /// Negative hits, and receipts.
    Refund,
    /// Descriptors with a limit of their own.
    Limits,
}

impl Right {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// `server.rights.*`, by [`Right`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RightHolders {
    /// Files with the tokens of callers.
    pub token_files: [Vec<PathBuf>; Right::ALL.len()],
    /// Names in client certificates.
    pub client_names: [Vec<ClientName>; Right::ALL.len()],
}

impl RightHolders {
    /// `true` if nobody is named, so that every caller may do everything.
    pub fn is_empty(&self) -> bool {
        self.token_files.iter().all(Vec::is_empty) && !self.has_client_names()
    }

    /// `true` if certificates count.
    pub fn has_client_names(&self) -> bool {
        !self.client_names.iter().all(Vec::is_empty)
    }

    /// Reads the tokens. Returns files without a usable token as errors.
    pub fn read(&self) -> (KnownTokens, Vec<FileError>) {
        let (mut tokens, mut errors) = (Vec::new(), Vec::new());
        for (path, rights) in self.rights_by_file() {
            match TokenFile(path.clone()).token() {
                Ok(token) => tokens.push((token, rights)),
                Err(error) => errors.push(error),
            }
        }
        (KnownTokens(tokens), errors)
    }

    fn rights_by_file(&self) -> BTreeMap<&PathBuf, u8> {
        let mut rights: BTreeMap<&PathBuf, u8> = BTreeMap::new();
        for (right, files) in Right::ALL.iter().zip(&self.token_files) {
            files.iter().for_each(|file| *rights.entry(file).or_default() |= right.bit());
        }
        rights
    }
}

impl FindFiles for RightHolders {
    type Notes = ();

    fn find_files(&self) -> (Vec<PathBuf>, ()) {
        (self.rights_by_file().into_keys().cloned().collect(), ())
    }
}

/// Tokens, each with its rights.
#[derive(Debug, Default)]
pub struct KnownTokens(Vec<(Token, u8)>);

/// The rights of callers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Rights(Option<Arc<Known>>);

#[derive(Debug)]
struct Known {
    tokens: ArcSwap<KnownTokens>,
    client_names: [Vec<ClientName>; Right::ALL.len()],
}

/// What a connection allows its calls by its certificate: one bit per [`Right`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CertificateRights(u8);

impl Rights {
    pub fn new(holders: &RightHolders, tokens: KnownTokens) -> Self {
        let (tokens, client_names) = (ArcSwap::from_pointee(tokens), holders.client_names.clone());
        Self(Some(Arc::new(Known { tokens, client_names })))
    }

    pub(crate) fn replace(&self, tokens: KnownTokens) {
        if let Self(Some(known)) = self {
            known.tokens.store(Arc::new(tokens));
        }
    }

    /// Returns what a client with this certificate may do without a token.
    pub(crate) fn of_certificate(&self, certificate: Option<&CertificateFacts>) -> CertificateRights {
        let Some((Known { client_names, .. }, certificate)) = self.0.as_deref().zip(certificate) else {
            return CertificateRights::default();
        };
        let named = Right::ALL.iter().zip(client_names);
        let named = named.filter(|(_, names)| names.iter().any(|name| name.fits(certificate)));
        CertificateRights(named.fold(0, |rights, (right, _)| rights | right.bit()))
    }

    /// Returns what a call with these headers may do.
    pub(crate) fn of(&self, headers: &HeaderMap, certificate: CertificateRights) -> CallRights {
        let Self(Some(known)) = self else { return CallRights::All };
        let tokens = known.tokens.load();
        let presented = tokens.0.iter().filter(|(token, _)| token.is_in(headers)).map(|(_, rights)| *rights);
        let certificate = Some(certificate.0).filter(|rights| *rights != 0);
        let rights = presented.chain(certificate).reduce(|one, other| one | other);
        rights.map_or(CallRights::Unknown, CallRights::Only)
    }
}

/// What one call may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallRights {
    #[default]
    All,
    Only(u8),
    /// Neither its token nor its certificate is named.
    Unknown,
}

/// The origin of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallOrigin {
    pub(crate) caller: Caller,
    pub(crate) rights: CallRights,
}

impl CallRights {
    /// # Errors
    /// [`NoDecision`] if the call may not do this.
    pub(crate) fn check(self, right: Right) -> Result<(), NoDecision> {
        match self {
            Self::All => Ok(()),
            Self::Only(rights) if rights & right.bit() != 0 => Ok(()),
            Self::Only(_) => Err(NoDecision::Refused(
                RequestFailure::Forbidden,
                format!(
                    "the caller may not do this: server.rights.{0}_token_files and {0}_client_san do not name it",
                    right.into_str()
                )
                .into(),
            )),
            Self::Unknown => Err(NoDecision::refused(
                RequestFailure::Unauthenticated,
                "the call needs the header Authorization: Bearer with a token of server.rights, or a client \
                 certificate that it names",
            )),
        }
    }

    /// Checks a request. Without the right to charge, checks leave limits with `reserve` alone.
    ///
    /// # Errors
    /// [`NoDecision`] for the first right that the call lacks.
    pub(crate) fn check_request(self, request: &mut Request) -> Result<(), NoDecision> {
        if self == Self::All {
            return Ok(());
        }
        for descriptor in &request.descriptors {
            self.check(right_for(descriptor, request))?;
            if descriptor.limit.is_some() {
                self.check(Right::Limits)?;
            }
        }
        if self.check(Right::Charge).is_err() {
            request.descriptors.iter_mut().for_each(|descriptor| descriptor.is_whole_cost = true);
        }
        Ok(())
    }
}

fn right_for(descriptor: &Descriptor, request: &Request) -> Right {
    if descriptor.pause().is_some() || descriptor.renewal().is_some() {
        return Right::Charge;
    }
    if descriptor.receipt().is_some() || descriptor.is_refund {
        return Right::Refund;
    }
    if request.cost(descriptor).taken() > 0 { Right::Charge } else { Right::Read }
}

#[cfg(test)]
mod tests {
    use engine::wire::json::Object;
    use engine::{Bounds, RawRequest};

    use super::*;

    const BOUNDS: Bounds = Bounds { max_descriptors: 9, max_entries: 9, max_value_bytes: 99 };

    fn request(descriptors: &str) -> Request {
        let text = format!(r#"{{"domain": "d", "descriptors": [{descriptors}]}}"#);
        let Object(raw): Object<RawRequest> = serde_json::from_str(&text).expect("a request");
        raw.validate(&BOUNDS).expect("a valid request")
    }

    #[test]
    fn each_descriptor_needs_its_right() {
        let entries = r#""entries": [{"key": "a", "value": "b"}]"#;
        let receipt =
            r#""entries": [{"key": "a", "value": "b"}, {"key": "ratelimitd_receipt", "value": "x"}]"#;
        let pause = r#""entries": [{"key": "a", "value": "b"}, {"key": "ratelimitd_pause", "value": "3s"}]"#;
        let renewal = r#""entries": [{"key": "a", "value": "b"}, {"key": "ratelimitd_renew", "value": "x"}]"#;
        let limit = r#""limit": {"requestsPerUnit": 5, "unit": "DAY"}"#;
        use Right::{Charge, Limits, Read, Refund};
        let table = [
            (format!("{{{entries}}}"), vec![Charge]),
            (format!("{{{entries}, \"hitsAddend\": 0}}"), vec![Read]),
            (format!("{{{entries}, \"hitsAddend\": 7}}"), vec![Charge]),
            (format!("{{{entries}, \"hitsAddend\": 7, \"isNegativeHits\": true}}"), vec![Refund]),
            (format!("{{{entries}, \"hitsAddend\": 0, \"isNegativeHits\": true}}"), vec![Refund]),
            (format!("{{{receipt}, \"hitsAddend\": 0}}"), vec![Refund]),
            (format!("{{{receipt}, \"hitsAddend\": 5}}"), vec![Refund]),
            (format!("{{{pause}, \"hitsAddend\": 0}}"), vec![Charge]),
            (format!("{{{renewal}, \"hitsAddend\": 0}}"), vec![Charge]),
            (format!("{{{entries}, {limit}}}"), vec![Charge, Limits]),
            (format!("{{{entries}, {limit}, \"hitsAddend\": 0}}"), vec![Read, Limits]),
            (format!("{{{entries}}}, {{{entries}, \"hitsAddend\": 0}}"), vec![Charge, Read]),
        ];
        for (descriptors, needed) in table {
            let bits = |rights: &[Right]| rights.iter().fold(0, |bits, right| bits | right.bit());
            for rights in 0..16 {
                let allowed = CallRights::Only(rights).check_request(&mut request(&descriptors)).is_ok();
                assert_eq!(allowed, bits(&needed) & !rights == 0, "{descriptors} with {rights:04b}");
            }
            assert!(CallRights::All.check_request(&mut request(&descriptors)).is_ok());
            let error = CallRights::Unknown.check_request(&mut request(&descriptors)).expect_err("no token");
            assert_eq!(error.failure(), RequestFailure::Unauthenticated);
        }
    }

    #[test]
    fn a_caller_that_may_only_read_takes_no_units_with_a_check() {
        let mut checked = request(r#"{"entries": [{"key": "a", "value": "b"}], "hitsAddend": 0}"#);
        CallRights::Only(Right::Read.bit() | Right::Charge.bit())
            .check_request(&mut checked)
            .expect("allowed");
        assert!(!checked.descriptors[0].is_whole_cost);
        CallRights::Only(Right::Read.bit()).check_request(&mut checked).expect("allowed");
        assert!(checked.descriptors[0].is_whole_cost, "as for a call without a charge after it");
    }

    #[test]
    fn a_token_has_the_rights_of_each_list_with_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let [gateway, page] = ["gateway", "page"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("token-of-{name}\n")).expect("room for a token");
            path
        });
        let missing = folder.path().join("missing");
        let token_files = [vec![page.clone(), gateway.clone()], vec![gateway], vec![missing], Vec::new()];
        let holders = RightHolders { token_files, ..RightHolders::default() };
        let (tokens, errors) = holders.read();
        assert_eq!(errors.len(), 1, "{errors:?}");
        let rights = Rights::new(&holders, tokens);
        let nothing = CertificateRights::default();
        let of = |token: &str| {
            let value = format!("Bearer {token}").parse().expect("a value");
            rights.of(&HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]), nothing)
        };
        assert_eq!(of("token-of-gateway"), CallRights::Only(Right::Read.bit() | Right::Charge.bit()));
        assert_eq!(of("token-of-page"), CallRights::Only(Right::Read.bit()));
        let without_token = rights.of(&HeaderMap::new(), nothing);
        assert_eq!((of("token-of-nobody"), without_token), (CallRights::Unknown, CallRights::Unknown));
        assert_eq!(Rights::default().of(&HeaderMap::new(), nothing), CallRights::All);
    }
}
