//! Servers that end the connection without an answer: the log and the health endpoint say what is known of the reason.

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::certificates::{Authority, Identity};
use crate::support::process::Plan;
use crate::support::{http, wait};

/// An empty SETTINGS frame, with which a server begins.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A service whose xDS server treats each connection so.
async fn serve<F: Future<Output = ()> + Send>(
    plan: impl FnOnce(Plan) -> Plan,
    expected: &[&str],
    server: impl Fn(TcpStream) -> F + Send,
) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let accept = async {
        loop {
            server(listener.accept().await.expect("a connection").0).await;
        }
    };
    let plan = plan(Plan::default().set("rules.xds.address", format!("localhost:{port}")))
        .set("rules.xds.backoff.initial", "20ms")
        .set("rules.xds.backoff.max", "20ms")
        .wait_for_livez();
    // Waits for the process and its log, which no task of this runtime may do.
    let expected: Vec<String> = expected.iter().map(|&text| text.to_owned()).collect();
    let check = tokio::task::spawn_blocking(move || {
        let service = plan.start();
        for text in &expected {
            service.log_with(text);
        }
        let last = expected.last().expect("a text");
        wait::expect("the reason", || {
            let page = http::get(service.http_port(), "/readyz", &[]).expect("an answer");
            assert_eq!(page.status, 503);
            page.body.contains("no stream to the xDS server: ") && page.body.contains(last.as_str())
        });
    });
    tokio::select! {
        () = accept => unreachable!("it accepts for ever"),
        checked = check => checked.expect("the reason is told"),
    }
}

fn goaway(code: u8, text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(8 + text.len()).expect("short");
    let head = [0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, code];
    [&SETTINGS[..], &head, text].concat()
}

/// Sends `bytes` at once, and reads until the client closes.
async fn answer(mut stream: TcpStream, bytes: Vec<u8>) {
    let _ = stream.write_all(&bytes).await;
    // The client may reset the connection at any time, at the end of the test too.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goaway_is_told_with_its_code_and_its_text() {
    let told = ["GOAWAY ENHANCE_YOUR_CALM \"too many clients\""];
    serve(|plan| plan, &told, |stream| answer(stream, goaway(11, b"too many clients"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_http_1_is_told() {
    let told = ["the server answers in HTTP/1.1, so this is not its port for gRPC"];
    let bad_request = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
    serve(|plan| plan, &told, |stream| answer(stream, bad_request.to_vec())).await;
}

/// Whether the client has opened its stream.
fn has_headers(read: &[u8]) -> bool {
    const PREFACE_BYTES: usize = 24;
    const HEADERS: u8 = 1;
    let mut frames = read.get(PREFACE_BYTES..).unwrap_or_default();
    while let [a, b, c, kind, ..] = frames {
        let payload = usize::from(*a) * 65_536 + usize::from(*b) * 256 + usize::from(*c);
        if *kind == HEADERS {
            return true;
        }
        frames = frames.get(9 + payload..).unwrap_or_default();
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_http_is_told() {
    // HEADERS of the first stream, with END_STREAM and END_HEADERS: `:status: 404` of HPACK's static table.
    let not_found = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x8D];
    let told = ["HTTP status code 404"];
    serve(
        |plan| plan,
        &told,
        |mut stream| async move {
            stream.write_all(&SETTINGS).await.expect("the client reads");
            let mut read = Vec::new();
            while !has_headers(&read) {
                stream.read_buf(&mut read).await.expect("the client writes");
            }
            answer(stream, not_found.to_vec()).await;
        },
    )
    .await;
}

fn acceptor(identity: &Identity) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(&identity.certificate).expect("a certificate");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_file(&identity.key).expect("a key"))
        .expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_after_the_tls_handshake_is_told() {
    let authority = Authority::new();
    let identity = authority.certificate_for(&["localhost"]);
    let tls = acceptor(&identity);
    let told = [
        "the server sent nothing after the TLS handshake, as one that does not accept this client's certificate",
    ];
    serve(
        |plan| {
            plan.set("rules.xds.tls.enabled", true)
                .set("rules.xds.tls.ca_file", authority.file().display().to_string())
        },
        &told,
        |stream| {
            let tls = tls.clone();
            async move {
                // Dropped without an alert, with bytes of the client unread: a reset, or the end.
                drop(tls.accept(stream).await);
            }
        },
    )
    .await;
}
