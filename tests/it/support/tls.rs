//! TLS clients of a service under test: rustls in the process of the test, and openssl.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::certificates::{Authority, Identity};

/// The name in the certificate of the service.
pub const SERVER_NAME: &str = "ratelimit.local";

/// A client that trusts `authorities` and speaks HTTP/2.
pub fn client(authorities: &[&Authority], identity: Option<&Identity>) -> Arc<ClientConfig> {
    let files: Vec<_> = authorities.iter().map(|authority| authority.file()).collect();
    client_of_files(&files, identity)
}

/// The same, of the files of authorities.
pub fn client_of_files(authorities: &[PathBuf], identity: Option<&Identity>) -> Arc<ClientConfig> {
    let mut trusted = RootCertStore::empty();
    for file in authorities {
        trusted.add(CertificateDer::from_pem_file(file).expect("a certificate")).expect("an authority");
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(trusted);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_file(certificate).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Does a handshake with a port of this machine.
///
/// # Errors
/// If the handshake fails.
pub async fn connect(port: u16, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(SERVER_NAME).expect("a name");
    TlsConnector::from(config).connect(name, stream).await
}

/// Does a handshake over a Unix socket.
///
/// # Errors
/// If the handshake fails.
pub async fn connect_unix(path: &Path, config: Arc<ClientConfig>) -> io::Result<TlsStream<UnixStream>> {
    let name = ServerName::try_from(SERVER_NAME).expect("a name");
    TlsConnector::from(config).connect(name, UnixStream::connect(path).await?).await
}

/// The certificate that a port of this machine shows.
pub async fn served_certificate(port: u16, config: Arc<ClientConfig>) -> CertificateDer<'static> {
    let stream = connect(port, config).await.expect("a handshake");
    let shown = stream.get_ref().1.peer_certificates().expect("a certificate");
    shown[0].clone().into_owned()
}

/// Everything that `openssl s_client` prints. It sends `input` and then waits until the server closes, or, without
/// input, ends after the handshake.
pub fn s_client(port: u16, arguments: &[&str], input: Option<&str>) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &format!("127.0.0.1:{port}")]).args(arguments);
    if input.is_some() {
        command.args(["-ign_eof", "-nocommands"]);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("openssl does not run ({error}): run `apt-get install openssl`"));
    let mut stdin = child.stdin.take().expect("is piped");
    // Fails if the server has refused the client already.
    let _ = io::Write::write_all(&mut stdin, input.unwrap_or_default().as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("openssl ends");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Runs openssl and expects success.
pub fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| panic!("openssl does not run ({error}): run `apt-get install openssl`"));
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
