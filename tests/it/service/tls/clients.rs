//! Clients that are refused: by an alert, a count, and a line in the log.

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, SanType, date_time_ymd};

use super::{Site, expect_answer, handshakes, plan, text, with_certificate};
use crate::support::certificates::{Authority, Identity};
use crate::support::grpc::Rls;
use crate::support::process::Ratelimitd;
use crate::support::tls::{client, s_client};
use crate::support::wait;

const SPIFFE: &str = "spiffe://cluster.local/ns/default/sa/envoy";

/// A bound on the answer of a port that does not close: the preface of HTTP/2, with a broken frame after it.
const NOT_HTTP2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame of HTTP/2";

/// What openssl prints as client with this certificate.
fn refused(service: &Ratelimitd, version: &str, identity: Option<&Identity>) -> String {
    let [certificate, key] = identity.map_or([String::new(), String::new()], |identity| {
        [text(&identity.certificate), text(&identity.key)]
    });
    let shown: &[&str] = if identity.is_some() { &["-cert", &certificate, "-key", &key] } else { &[] };
    s_client(service.grpc_port(), &[&[version, "-alpn", "h2"], shown].concat(), Some(NOT_HTTP2))
}

#[tokio::test]
async fn a_client_needs_a_valid_certificate_of_the_authority() {
    let (site, other) = (Site::new(), Authority::new());
    let service = site.mutual_plan().start();
    let purpose = |purpose: Option<ExtendedKeyUsagePurpose>| {
        move |certificate: &mut CertificateParams| {
            certificate.extended_key_usages = purpose.into_iter().collect()
        }
    };
    let accepted = [
        site.authority.certificate("clientAuth", &["c"], purpose(Some(ExtendedKeyUsagePurpose::ClientAuth))),
        site.authority.certificate("any purpose", &["c"], purpose(None)),
        site.authority.certificate("no names", &[], |_| {}),
        site.authority.certificate("an address", &["10.0.0.7"], |_| {}),
    ];
    for identity in &accepted {
        let config = client(&[&site.authority], Some(identity));
        let mut rls = Rls::connect_tls(service.grpc_port(), config).await.expect("an accepted client");
        expect_answer(&mut rls).await;
    }
    let server_only =
        site.authority.certificate("serverAuth", &["c"], purpose(Some(ExtendedKeyUsagePurpose::ServerAuth)));
    let expired = site.authority.certificate("expired", &["c"], |certificate| {
        (certificate.not_before, certificate.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    });
    let stranger = other.certificate_for(&["stranger"]);
    // The certificate; the alerts in TLS 1.2 and 1.3; the result in the metrics.
    let table = [
        (None, [116, 116], "no_certificate"),
        (Some(&stranger), [48, 48], "certificate_invalid"),
        (Some(&expired), [45, 45], "certificate_invalid"),
        (Some(&server_only), [43, 43], "certificate_invalid"),
    ];
    for (identity, alerts, result) in table {
        let before = handshakes(&service, result);
        for (version, alert) in ["-tls1_2", "-tls1_3"].into_iter().zip(alerts) {
            let printed = refused(&service, version, identity);
            assert!(
                printed.contains(&format!("SSL alert number {alert}\n")),
                "{version} {result}: {printed}"
            );
        }
        wait::expect("both are counted", || handshakes(&service, result) >= before + 2);
        assert_eq!(handshakes(&service, result), before + 2, "{result}");
    }
    let lines = |text: &str| service.log().lines().filter(|line| line.contains(text)).count();
    for reason in ["the client showed no certificate", "no CA in client_ca_file signed"] {
        service.log_with(reason);
    }
    assert_eq!(lines("last=the client showed no certificate"), 1, "one line a minute");
    assert_eq!(lines("last=no CA in client_ca_file signed"), 1, "one line a minute");
    let log = service.log();
    assert!(log.contains("client=127.0.0.1") && log.contains("port=\"grpc\""), "{log}");
}

#[tokio::test]
async fn a_client_needs_one_of_the_names() {
    let site = Site::new();
    let spiffe = |certificate: &mut CertificateParams| {
        let uri = SanType::URI(SPIFFE.try_into().expect("ASCII"));
        certificate.subject_alt_names.push(uri);
    };
    let named = |names: &[&str]| site.authority.certificate_for(names);
    let [dns, star, address] = [named(&["client.local"]), named(&["*.gateway"]), named(&["10.0.0.7"])];
    let workload = site.authority.certificate("workload", &[], spiffe);
    let nameless = site.authority.certificate("nameless", &[], |certificate| {
        certificate.distinguished_name.push(DnType::CommonName, "client.local");
    });
    // The setting, and whether it admits: client.local, *.gateway, 10.0.0.7, the SPIFFE ID, and a common name only.
    let several = format!("client.local, {SPIFFE}");
    let table = [
        ("CLIENT.local", [true, false, false, false, false]),
        ("envoy.gateway", [false, true, false, false, false]),
        ("10.0.0.7", [false, false, true, false, false]),
        (SPIFFE, [false, false, false, true, false]),
        (&several, [true, false, false, true, false]),
    ];
    for (setting, expected) in table {
        let service = site.mutual_plan().set("server.grpc.tls.client_san", setting).start();
        for (identity, expected) in [&dns, &star, &address, &workload, &nameless].into_iter().zip(expected) {
            if expected {
                let config = client(&[&site.authority], Some(identity));
                let rls = Rls::connect_tls(service.grpc_port(), config).await;
                expect_answer(&mut rls.expect("an accepted client")).await;
            } else {
                let printed = refused(&service, "-tls1_3", Some(identity));
                assert!(
                    printed.contains("SSL alert number 42\n"),
                    "{setting}, {:?}: {printed}",
                    identity.certificate
                );
            }
        }
        let refused = expected.iter().filter(|expected| !**expected).count();
        let refused = u64::try_from(refused).expect("few");
        let counted = || handshakes(&service, "certificate_name");
        wait::expect("all are counted", || counted() >= refused);
        assert_eq!(counted(), refused, "{setting}");
        wait::expect("a line", || service.log().contains("none of which is in client_san"));
    }
}

#[tokio::test]
async fn a_self_signed_certificate_in_the_file_is_its_own_authority() {
    let (site, client_authority) = (Site::new(), Authority::new());
    let pinned = client_authority.certificate_for(&["pinned"]);
    let other = client_authority.certificate_for(&["other"]);
    let plan = with_certificate(plan(), "grpc", &site.server);
    let service = plan.set("server.grpc.tls.client_ca_file", text(&pinned.certificate)).start();
    let config = client(&[&site.authority], Some(&pinned));
    expect_answer(&mut Rls::connect_tls(service.grpc_port(), config).await.expect("a pinned client")).await;
    let printed = refused(&service, "-tls1_3", Some(&other));
    assert!(printed.contains("SSL alert number 48\n"), "{printed}");
}

#[tokio::test]
async fn without_authorities_no_certificate_is_asked_for() {
    let site = Site::new();
    let service = site.plan().set("server.grpc.tls.client_san", "client.local").start();
    let other = Authority::new();
    let stranger = other.certificate_for(&["stranger"]);
    for identity in [None, Some(&stranger)] {
        let config = client(&[&site.authority], identity);
        expect_answer(&mut Rls::connect_tls(service.grpc_port(), config).await.expect("any client")).await;
    }
    service.log_with("tls.client_san has no effect");
}

#[tokio::test]
async fn clients_that_refuse_us_or_speak_clear_text_are_counted() {
    let site = Site::new();
    let service = site.plan().start();
    let distrusting = client(&[&Authority::new()], None);
    assert!(Rls::connect_tls(service.grpc_port(), distrusting).await.is_err());
    wait::expect("an alert of the client", || handshakes(&service, "refused_by_client") == 1);
    let clear = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{}", service.grpc_port()));
    let _ = clear.expect("a URL").connect().await;
    wait::expect("clear text", || handshakes(&service, "not_tls") >= 1);
    for line in ["the client rejected the server's certificate", "the client does not speak TLS"] {
        service.log_with(line);
    }
}
