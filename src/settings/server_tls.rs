//! `server.grpc.tls.*`, `server.http.tls.*` and `server.admin.tls.*`: the certificates of the ports.

use tls::{ClientName, ServerTls};

use super::error::{Fault, Origin, SettingProblem};
use super::parsers::{Parser, optional_path};
use super::reader::Reader;

/// The keys of one port.
pub(super) struct TlsKeys {
    cert_file: &'static str,
    key_file: &'static str,
    client_ca_file: &'static str,
    client_san: &'static str,
}

pub(super) const GRPC_TLS: TlsKeys = TlsKeys {
    cert_file: "server.grpc.tls.cert_file",
    key_file: "server.grpc.tls.key_file",
    client_ca_file: "server.grpc.tls.client_ca_file",
    client_san: "server.grpc.tls.client_san",
};
pub(super) const HTTP_TLS: TlsKeys = TlsKeys {
    cert_file: "server.http.tls.cert_file",
    key_file: "server.http.tls.key_file",
    client_ca_file: "server.http.tls.client_ca_file",
    client_san: "server.http.tls.client_san",
};
pub(super) const ADMIN_TLS: TlsKeys = TlsKeys {
    cert_file: "server.admin.tls.cert_file",
    key_file: "server.admin.tls.key_file",
    client_ca_file: "server.admin.tls.client_ca_file",
    client_san: "server.admin.tls.client_san",
};

/// The TLS of a port; `None` without a certificate.
pub(super) fn tls_from_reader(reader: &mut Reader, keys: &TlsKeys) -> Option<ServerTls> {
    let [cert_origin, key_origin, ca_origin] =
        [keys.cert_file, keys.key_file, keys.client_ca_file].map(|key| reader.origin(key));
    let certificate = reader.take(keys.cert_file, "", optional_path());
    let key = reader.take(keys.key_file, "", optional_path());
    let client_ca_file = reader.take(keys.client_ca_file, "", optional_path());
    let client_names = reader.take(keys.client_san, "", client_names());
    match (certificate, key) {
        (Some(cert_file), Some(key_file)) => {
            Some(ServerTls { cert_file, key_file, client_ca_file, client_names })
        }
        (None, None) => {
            if client_ca_file.is_some() {
                let reason = "needs cert_file and key_file: without them the port is clear text";
                refuse(reader, keys.client_ca_file, ca_origin, reason);
            }
            None
        }
        (certificate, _) => {
            let reason = "cert_file and key_file belong together: set both or none";
            let written = if certificate.is_some() {
                (keys.cert_file, cert_origin)
            } else {
                (keys.key_file, key_origin)
            };
            refuse(reader, written.0, written.1, reason);
            None
        }
    }
}

/// A Unix socket is protected by the mode of its file. Call it before [`tls_from_reader`].
pub(super) fn refuse_tls_on_socket(reader: &mut Reader, keys: &TlsKeys) {
    let origin = reader.origin(keys.cert_file);
    if origin != Origin::Default {
        refuse(
            reader,
            keys.cert_file,
            origin,
            "a Unix socket has no TLS: leave it out, or use an IP address",
        );
    }
}

fn refuse(reader: &mut Reader, key: &str, origin: Origin, reason: &'static str) {
    reader.refuse(SettingProblem { key: key.to_owned(), origin, fault: Fault::Unsupported(reason) });
}

fn client_names() -> Parser<Vec<ClientName>> {
    let expected = "DNS names, IP addresses or URIs, with commas between them, or nothing";
    Parser::new(expected, |text| {
        let names = text.split(',').map(str::trim).filter(|_| !text.is_empty());
        names.map(ClientName::parse).collect()
    })
}
