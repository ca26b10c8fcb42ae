//! Why a handshake failed: the metric's label and the log message.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

use crate::telemetry::metrics::HandshakeResult;

#[derive(Debug)]
pub(super) struct HandshakeFailure {
    pub(super) result: HandshakeResult,
    pub(super) reason: String,
}

impl HandshakeFailure {
    pub(super) fn new(result: HandshakeResult, reason: impl Into<String>) -> Self {
        Self { result, reason: reason.into() }
    }

    /// Classifies the error of tokio-rustls. It contains the error of rustls unless the client closed the connection;
    /// the result is then `if_closed`.
    pub(super) fn of_error(error: &io::Error, if_closed: HandshakeResult) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
        match cause {
            Some(cause) => Self::new(result_of(cause), reason_of(cause)),
            None if if_closed == HandshakeResult::Abandoned => Self::new(
                if_closed,
                "the client closed the connection after the server's certificate and signature",
            ),
            None => Self::new(if_closed, "the client closed the connection"),
        }
    }
}

fn result_of(error: &Error) -> HandshakeResult {
    match error {
        Error::NoCertificatesPresented => HandshakeResult::NoCertificate,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => HandshakeResult::CertificateName,
        Error::InvalidCertificate(_) => HandshakeResult::CertificateInvalid,
        Error::AlertReceived(_) => HandshakeResult::RefusedByClient,
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => HandshakeResult::Incompatible,
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => HandshakeResult::NotTls,
        _ => HandshakeResult::Failed,
    }
}

fn reason_of(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => "the client showed no certificate".to_owned(),
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            format!("the client's certificate has {}, none of which is in client_san", presented.join(", "))
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no CA in client_ca_file signed the client's certificate".to_owned()
        }
        Error::InvalidCertificate(_) => format!("the client's certificate is invalid: {error}"),
        // The client sends the fourth one if its CA has the same name as the port's CA, but a different key.
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::CertificateExpired
            | AlertDescription::UnsupportedCertificate),
        ) => format!("the client rejected the server's certificate (alert {alert:?})"),
        Error::AlertReceived(alert) => format!("the client sent the alert {alert:?}"),
        Error::NoApplicationProtocol => "the client offers other protocols only (ALPN)".to_owned(),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            format!("the client does not speak TLS: {error}")
        }
        error => error.to_string(),
    }
}
