//! Certificates, keys and authorities that are replaced while the service runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::CertificateParams;
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::{any_request, expect_answer, metric, plan, reloads, text};
use crate::support::certificates::{Authority, Identity};
use crate::support::grpc::Rls;
use crate::support::grpc_go::GrpcGo;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::tls::{SERVER_NAME, client, served_certificate};
use crate::support::{http, wait};

/// A folder with the files of a Secret, behind links as the kubelet makes them.
struct Secret {
    folder: tempfile::TempDir,
    versions: u32,
}

/// The contents of the files.
#[derive(Clone)]
struct Contents {
    certificate: String,
    key: String,
    authorities: String,
}

impl Secret {
    fn new(contents: &Contents) -> Self {
        let mut secret = Self { folder: tempfile::tempdir().expect("a folder"), versions: 0 };
        secret.swap(contents);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(name), secret.path(name)).expect("a link");
        }
        secret
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self) -> Plan {
        let set = |plan: Plan, (key, name): (&str, &str)| {
            plan.set(&format!("server.grpc.tls.{key}"), text(&self.path(name)))
        };
        let files = [("cert_file", "tls.crt"), ("key_file", "tls.key"), ("client_ca_file", "ca.crt")];
        files.into_iter().fold(plan(), set)
    }

    /// A new folder, and the link `..data` to it, renamed over the old link.
    fn swap(&mut self, contents: &Contents) {
        self.versions += 1;
        let version = format!("..version_{}", self.versions);
        fs::create_dir(self.path(&version)).expect("a folder");
        contents.write(&self.path(&version));
        let link = self.path("..data_tmp");
        symlink(&version, &link).expect("a link");
        fs::rename(&link, self.path("..data")).expect("a rename");
    }
}

impl Contents {
    fn new(server: &Identity, authorities: &[&Authority]) -> Self {
        Self {
            certificate: fs::read_to_string(&server.certificate).expect("a certificate"),
            key: fs::read_to_string(&server.key).expect("a key"),
            authorities: authorities.iter().map(|authority| authority.pem()).collect(),
        }
    }

    fn files(&self) -> [(&'static str, &str); 3] {
        [("tls.crt", &self.certificate), ("tls.key", &self.key), ("ca.crt", &self.authorities)]
    }

    fn write(&self, folder: &Path) {
        for (name, content) in self.files() {
            fs::write(folder.join(name), content).expect("room for a file");
        }
    }

    fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("a certificate")
    }
}

fn server(authority: &Authority, stem: &str) -> Identity {
    authority.certificate(stem, &[SERVER_NAME], |_: &mut CertificateParams| {})
}

async fn expect_served(service: &Ratelimitd, config: &Arc<ClientConfig>, contents: &Contents, how: &str) {
    let wanted = contents.certificate();
    let served = wait::until_async(wait::PATIENCE, async || {
        let shown = served_certificate(service.grpc_port(), Arc::clone(config)).await;
        (shown == wanted).then_some(())
    });
    assert!(served.await.is_some(), "{how}: the new certificate is not served: {}", service.log());
}

#[tokio::test]
async fn every_kind_of_change_is_served_and_open_connections_stay() {
    let authority = Authority::new();
    let caller = authority.certificate_for(&["caller"]);
    let config = client(&[&authority], Some(&caller));
    let of = |stem: &str| Contents::new(&server(&authority, stem), &[&authority]);
    let mut secret = Secret::new(&of("first"));
    let service = secret.plan().start();
    let mut open = Rls::connect_tls(service.grpc_port(), Arc::clone(&config)).await.expect("a connection");
    let expiry = "ratelimitd_tls_certificate_expiry_timestamp_seconds{file=\"cert_file\",port=\"grpc\"}";
    assert!(metric(&service, expiry).is_some());

    let swapped = of("swapped");
    secret.swap(&swapped);
    expect_served(&service, &config, &swapped, "a swapped link").await;
    let in_place = of("in place");
    in_place.write(&secret.path("..data"));
    expect_served(&service, &config, &in_place, "written in place").await;
    let renamed = of("renamed");
    for (name, content) in renamed.files() {
        fs::write(secret.path(".new"), content).expect("room for a file");
        fs::rename(secret.path(".new"), secret.path(name)).expect("a rename");
    }
    expect_served(&service, &config, &renamed, "renamed over the links").await;
    // Half a second between the certificate and the key: until then the old pair is served.
    let slow = of("slow");
    fs::write(secret.path("tls.crt"), &slow.certificate).expect("room for a file");
    wait::expect("a failed reload", || reloads(&service, "failure") == 1);
    expect_served(&service, &config, &renamed, "a certificate without its key").await;
    fs::write(secret.path("tls.key"), &slow.key).expect("room for a file");
    expect_served(&service, &config, &slow, "and then the key").await;
    expect_answer(&mut open).await;
    assert_eq!((reloads(&service, "success"), reloads(&service, "failure")), (4, 1));
}

#[tokio::test]
async fn a_bad_new_file_keeps_the_old_certificates_and_is_told() {
    let authority = Authority::new();
    let caller = authority.certificate_for(&["caller"]);
    let config = client(&[&authority], Some(&caller));
    let good = Contents::new(&server(&authority, "good"), &[&authority]);
    let other = Contents::new(&server(&authority, "other"), &[&authority]);
    let mut secret = Secret::new(&good);
    let service = secret.plan().start();
    let page = || -> Value {
        let page = http::get(service.admin_port(), "/tls", &[]).expect("an answer").body;
        serde_json::from_str(&page).expect("JSON")
    };
    assert_eq!(page()["grpc"]["in_force"], true);
    let bad = |change: &dyn Fn(&mut Contents)| {
        let mut contents = good.clone();
        change(&mut contents);
        contents
    };
    let garbage = "not PEM\n".to_owned();
    // What is wrong; the error, after the name of the setting.
    let table: [(Contents, &str); 4] = [
        (bad(&|contents| contents.certificate.clone_from(&garbage)), "cert_file: "),
        (bad(&|contents| contents.key.clone_from(&other.key)), "key_file: "),
        (bad(&|contents| contents.authorities.clone_from(&garbage)), "client_ca_file: "),
        (bad(&|contents| contents.certificate = contents.certificate[..200].to_owned()), "cert_file: "),
    ];
    for (failures, (contents, error)) in (1..).zip(table) {
        secret.swap(&contents);
        wait::expect("a failed reload", || reloads(&service, "failure") == failures);
        let shown = page();
        assert_eq!(shown["grpc"]["in_force"], false, "{shown}");
        let told = shown["grpc"]["last_error"]["error"].as_str().expect("an error");
        assert!(told.starts_with(&format!("server.grpc.tls.{error}")), "{told}");
        wait::expect("a line", || service.log().contains(told));
        expect_served(&service, &config, &good, error).await;
    }
    fs::remove_file(secret.path("tls.key")).expect("a link");
    wait::expect("the missing key is noticed", || reloads(&service, "failure") == 5);
    expect_served(&service, &config, &good, "without a key").await;
    let changed = "cannot load changed certificates";
    let lines = || service.log().matches(changed).count();
    wait::expect("a line for each state of the files", || lines() >= 5);
    assert_eq!(lines(), 5, "no state is told twice: {}", service.log());
    symlink("..data/tls.key", secret.path("tls.key")).expect("a link");
    secret.swap(&other);
    expect_served(&service, &config, &other, "good files again").await;
    assert_eq!(
        (page()["grpc"]["in_force"].clone(), page()["grpc"]["last_error"].clone()),
        (true.into(), Value::Null)
    );
}

#[tokio::test]
async fn an_expired_certificate_does_not_replace_a_valid_one() {
    let authority = Authority::new();
    let caller = authority.certificate_for(&["caller"]);
    let config = client(&[&authority], Some(&caller));
    let until = |stem: &str, year: i32| {
        let change = |certificate: &mut CertificateParams| {
            certificate.not_before = rcgen::date_time_ymd(2019, 1, 1);
            certificate.not_after = rcgen::date_time_ymd(year, 1, 1);
        };
        Contents::new(&authority.certificate(stem, &[SERVER_NAME], change), &[&authority])
    };
    let (valid, expired) = (until("valid", 2090), until("expired", 2021));
    let mut secret = Secret::new(&valid);
    let service = secret.plan().start();
    secret.swap(&expired);
    wait::expect("a failed reload", || reloads(&service, "failure") == 1);
    expect_served(&service, &config, &valid, "an expired certificate").await;
    let reason = "its certificate expired at 2021-01-01T00:00:00Z";
    let log = service.log_with(reason);
    assert!(log.lines().any(|line| line.contains(" ERROR ") && line.contains(reason)), "{log}");
    let page = http::get(service.admin_port(), "/tls", &[]).expect("an answer").body;
    assert!(page.contains(reason) && page.contains("\"valid_to\": \"2090-01-01T00:00:00Z\""), "{page}");
    assert_eq!(reloads(&service, "success"), 0);

    // Where the one in force has expired too, a later one may still be what the clients were told to accept.
    let mut secret = Secret::new(&expired);
    let service = secret.plan().start();
    secret.swap(&until("expired later", 2022));
    wait::expect("a reload", || reloads(&service, "success") == 1);
    assert_eq!(reloads(&service, "failure"), 0);
}

#[tokio::test]
async fn the_authorities_of_clients_are_replaced_too() {
    let (old, new) = (Authority::new(), Authority::new());
    let [old_client, new_client] = [&old, &new].map(|authority| {
        let caller = authority.certificate_for(&["caller"]);
        client(&[&old], Some(&caller))
    });
    let certificate = server(&old, "server");
    let mut secret = Secret::new(&Contents::new(&certificate, &[&old]));
    let service = secret.plan().start();
    let is_answered = async |config: &Arc<ClientConfig>| {
        let rls = Rls::connect_tls(service.grpc_port(), Arc::clone(config)).await;
        match rls {
            Ok(mut rls) => rls.send(any_request()).await.is_ok(),
            Err(_) => false,
        }
    };
    assert!(is_answered(&old_client).await && !is_answered(&new_client).await);
    let mut open =
        Rls::connect_tls(service.grpc_port(), Arc::clone(&old_client)).await.expect("a connection");
    for (authorities, expected) in [(&[&old, &new][..], (true, true)), (&[&new][..], (false, true))] {
        secret.swap(&Contents::new(&certificate, authorities));
        let seen = wait::until_async(wait::PATIENCE, async || {
            ((is_answered(&old_client).await, is_answered(&new_client).await) == expected).then_some(())
        });
        assert!(seen.await.is_some(), "{expected:?}");
        expect_answer(&mut open).await;
    }
}

/// Clients that keep a connection and clients that connect for each call, on grpc-go, while everything is replaced.
#[test]
fn no_call_fails_while_certificates_are_replaced() {
    let (authority, next) = (Authority::new(), Authority::new());
    let caller = authority.certificate_for(&["caller"]);
    let of = |stem: &str, authorities: &[&Authority]| Contents::new(&server(&authority, stem), authorities);
    let mut secret = Secret::new(&of("first", &[&authority]));
    let service = secret.plan().set("server.grpc.max_connection_age", "1s").start();
    let client =
        || GrpcGo::new(service.grpc_port(), &any_request()).trusting(&authority.file()).showing(&caller);
    let (kept, fresh) = (client().call_until_told(), client().fresh().call_until_told());
    let mut replaced = 0;
    for round in 0..3 {
        let both = of(&format!("both {round}"), &[&authority, &next]);
        let one = of(&format!("one {round}"), &[&authority]);
        let changes: [(&str, &Contents); 3] = [("swap", &both), ("in place", &one), ("swap", &both)];
        for (how, contents) in changes {
            match how {
                "swap" => secret.swap(contents),
                _ => contents.write(&secret.path("..data")),
            }
            replaced += 1;
            wait::expect("the new certificates", || reloads(&service, "success") >= replaced);
        }
    }
    for told in [kept.end(), fresh.end()] {
        assert_eq!((told.failed, told.reason.as_str()), (0, ""), "{told:?}: {}", service.log());
        assert!(told.answered > 100, "{told:?}");
    }
}
