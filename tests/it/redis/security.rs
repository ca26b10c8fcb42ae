//! How a store connects: users and passwords, TLS, sockets, databases. No secret is logged or returned.

use std::path::PathBuf;
use std::sync::Arc;

use ::store::observer::NoopObserver;
use ::store::redis::{Credentials, Password, RedisOptions, RedisStore};
use ::tls::{ClientTls, ServerCheck};
use engine::{Cost, Outcome, StoreError};

use crate::redis::{decide_one, kernels, patient_options, store};
use crate::support::certificates::{Authority, Identity};
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::{ports, wait};

const SECRET: &str = "hunter2";

fn options(url: String) -> RedisOptions {
    patient_options(&url)
}

async fn decide(store: &RedisStore) -> Result<Outcome, StoreError> {
    decide_one(store, kernels(1_000)[0].1, "security", Cost::take(1)).await
}

async fn failure(options: &RedisOptions) -> String {
    let error = decide(&store(options)).await.expect_err("the connection must fail");
    let shown = format!("{error} {error:?} {options:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    error.to_string()
}

#[tokio::test]
async fn a_user_with_a_password_is_accepted() {
    let redis = Redis::start();
    let rule = format!(">{SECRET}");
    redis.run::<()>(&["ACL", "SETUSER", "limiter", "on", &rule, "~it:*", "+@all"]).expect("ACL");
    let url = format!("redis://limiter:{SECRET}@127.0.0.1:{}", redis.port());
    decide(&store(&options(url))).await.expect("in the URL");

    let mut separate = options(redis.url());
    separate.credentials =
        Credentials { username: Some("limiter".to_owned()), password: Password::Text(SECRET.to_owned()) };
    decide(&store(&separate)).await.expect("not in the URL");
    let wrong =
        Credentials { password: Password::Text(format!("not {SECRET}")), ..separate.credentials.clone() };
    let error = failure(&RedisOptions { credentials: wrong, ..separate }).await;
    assert!(error.contains("WRONGPASS") || error.to_lowercase().contains("password"), "{error}");
}

#[tokio::test]
async fn a_password_file_is_read_for_every_connection() {
    let redis = Redis::start();
    let rule = format!(">{SECRET}");
    redis.run::<()>(&["ACL", "SETUSER", "limiter", "on", &rule, "~it:*", "+@all"]).expect("ACL");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut options = options(redis.url());
    options.credentials = Credentials {
        username: Some("limiter".to_owned()),
        password: Password::File(file.path().to_owned()),
    };
    let empty = RedisStore::new(&options, Arc::new(NoopObserver)).expect_err("an empty file").to_string();
    assert!(empty.contains("the first line must have 1 to 4096 bytes"), "{empty}");
    std::fs::write(file.path(), "old password\n").expect("room for a password");
    let store = store(&options);
    decide(&store).await.expect_err("an old password");
    std::fs::write(file.path(), format!("{SECRET}\n")).expect("room for a password");
    let is_used = wait::until_async(wait::PATIENCE, async || decide(&store).await.ok()).await;
    assert!(is_used.is_some(), "the new password is not used");
}

/// As docs/redis.md says of passwords that expire: the file is replaced, and the server cuts the connections.
#[tokio::test]
async fn passwords_that_expire_are_replaced_one_after_the_other() {
    let redis = Redis::start();
    let set_password = |password: &str| {
        let rule = format!(">{password}");
        let words = ["ACL", "SETUSER", "limiter", "on", "resetpass", &rule, "~it:*", "+@all"];
        redis.run::<()>(&words).expect("ACL");
    };
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let file = folder.path().join("password");
    let write = |password: &str| {
        let new = folder.path().join("new");
        std::fs::write(&new, format!("{password}\n")).expect("room for a password");
        std::fs::rename(&new, &file).expect("the same directory");
    };
    set_password("first");
    write("first");
    let mut options = options(redis.url());
    options.credentials =
        Credentials { username: Some("limiter".to_owned()), password: Password::File(file.clone()) };
    let store = store(&options);
    decide(&store).await.expect("the first password");
    for password in ["second", "third", "fourth"] {
        set_password(password);
        let cut =
            redis.run::<u64>(&["CLIENT", "KILL", "USER", "limiter"]).expect("the number of connections");
        assert!(cut > 0, "no connection is cut");
        decide(&store).await.expect_err("the file has the old password");
        write(password);
        let is_used = wait::until_async(wait::PATIENCE, async || decide(&store).await.ok()).await;
        assert!(is_used.is_some(), "the {password} password is not used");
    }
}

/// A server with a TLS port beside its plain port.
pub(super) fn tls_server(
    authority: &Authority,
    identity: &Identity,
    client_certificates: &str,
) -> (Redis, u16) {
    let port = ports::free();
    let path = |path: &PathBuf| path.display().to_string();
    let arguments = {
        let arguments = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(&identity.certificate)),
            ("--tls-key-file", path(&identity.key)),
            ("--tls-ca-cert-file", path(&authority.file())),
            ("--tls-auth-clients", client_certificates.to_owned()),
        ];
        arguments.map(|(name, value)| [name.to_owned(), value]).concat()
    };
    (Redis::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>()), port)
}

#[tokio::test]
async fn tls_trusts_only_the_authorities_in_the_file() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_redis, port) = tls_server(&ours, &ours.certificate_for(&["127.0.0.1", "localhost"]), "no");
    let trusting = |authority: &Authority, host: &str| RedisOptions {
        tls: ClientTls { ca_file: Some(authority.file()), ..ClientTls::default() },
        ..options(format!("rediss://{host}:{port}"))
    };
    for host in ["127.0.0.1", "localhost"] {
        decide(&store(&trusting(&ours, host))).await.expect(host);
    }
    let error = failure(&trusting(&theirs, "127.0.0.1")).await;
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
    // Without a file the authorities of the system are used, which do not include this one.
    let system = options(format!("rediss://127.0.0.1:{port}"));
    match RedisStore::new(&system, Arc::new(NoopObserver)) {
        Ok(store) => assert!(decide(&store).await.is_err()),
        Err(error) => assert!(error.to_string().contains("trust store"), "{error}"),
    }
}

#[tokio::test]
async fn the_certificate_of_the_server_must_have_the_right_name() {
    let authority = Authority::new();
    let (_redis, port) = tls_server(&authority, &authority.certificate_for(&["redis.internal"]), "no");
    let named = |server_name: Option<&'static str>| RedisOptions {
        tls: ClientTls {
            ca_file: Some(authority.file()),
            server_name: server_name.map(|name| name.try_into().expect("a name")),
            ..ClientTls::default()
        },
        ..options(format!("rediss://127.0.0.1:{port}"))
    };
    decide(&store(&named(Some("redis.internal")))).await.expect("the name in the certificate");
    for wrong in [None, Some("redis.example")] {
        let error = failure(&named(wrong)).await;
        assert!(error.contains("not valid for name"), "{error}");
    }
}

#[tokio::test]
async fn the_name_in_the_certificate_is_unchecked_by_option_but_the_chain_is() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (_redis, port) = tls_server(&authority, &authority.certificate_for(&["redis.internal"]), "no");
    let trusting = |authority: &Authority| RedisOptions {
        tls: ClientTls { ca_file: Some(authority.file()), check: ServerCheck::Chain, ..ClientTls::default() },
        ..options(format!("rediss://127.0.0.1:{port}"))
    };
    decide(&store(&trusting(&authority))).await.expect("any name");
    let error = failure(&trusting(&other)).await;
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
}

#[tokio::test]
async fn a_self_signed_certificate_in_the_file_is_trusted_as_the_server() {
    let (ours, theirs) = (Authority::for_server(&["127.0.0.1"]), Authority::for_server(&["127.0.0.1"]));
    let (_redis, port) = tls_server(&ours, &ours.own_identity(), "no");
    let trusting = |file: PathBuf| RedisOptions {
        tls: ClientTls { ca_file: Some(file), ..ClientTls::default() },
        ..options(format!("rediss://127.0.0.1:{port}"))
    };
    decide(&store(&trusting(ours.file()))).await.expect("the certificate is in the file");
    let error = failure(&trusting(theirs.file())).await;
    assert!(error.contains("CaUsedAsEndEntity"), "{error}");

    let named = Authority::for_server(&["redis.internal"]);
    let (_redis, port) = tls_server(&named, &named.own_identity(), "no");
    let trusting = |check| RedisOptions {
        tls: ClientTls { ca_file: Some(named.file()), check, ..ClientTls::default() },
        ..options(format!("rediss://127.0.0.1:{port}"))
    };
    let error = failure(&trusting(ServerCheck::ChainAndName)).await;
    assert!(error.contains("not valid for name"), "{error}");
    decide(&store(&trusting(ServerCheck::Chain))).await.expect("any name");

    let expired = Authority::expired_for_server(&["127.0.0.1"]);
    let (_redis, port) = tls_server(&expired, &expired.own_identity(), "no");
    let options = RedisOptions {
        tls: ClientTls { ca_file: Some(expired.file()), ..ClientTls::default() },
        ..options(format!("rediss://127.0.0.1:{port}"))
    };
    let error = failure(&options).await;
    assert!(error.to_lowercase().contains("expired"), "{error}");
}

#[tokio::test]
async fn a_server_can_require_a_client_certificate() {
    let authority = Authority::new();
    let (_redis, port) = tls_server(&authority, &authority.certificate_for(&["127.0.0.1"]), "yes");
    let client = authority.certificate_for(&["limiter"]);
    let with = |identity| RedisOptions {
        tls: ClientTls { ca_file: Some(authority.file()), identity, ..ClientTls::default() },
        ..options(format!("rediss://127.0.0.1:{port}"))
    };
    decide(&store(&with(Some((client.certificate, client.key)))))
        .await
        .expect("the server knows the authority");
    failure(&with(None)).await;
}

#[tokio::test]
async fn the_error_names_an_unusable_file() {
    let nowhere = PathBuf::from("/nowhere/ca.pem");
    let empty = tempfile::NamedTempFile::new().expect("a temporary file");
    for path in [nowhere, empty.path().to_owned()] {
        let tls = ClientTls { ca_file: Some(path.clone()), ..ClientTls::default() };
        let options = RedisOptions { tls, ..options("rediss://127.0.0.1:1".to_owned()) };
        let error =
            RedisStore::new(&options, Arc::new(NoopObserver)).expect_err("no authorities").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn sockets_and_databases_are_used() {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("redis.sock").display().to_string();
    let redis = Redis::start_with(&["--unixsocket", &socket]);
    decide(&store(&options(format!("redis+unix://{socket}?db=3")))).await.expect("through the socket");
    decide(&store(&options(format!("redis://127.0.0.1:{}/5", redis.port()))))
        .await
        .expect("through the port");
    // `localhost` may have several addresses. The server listens on one of them.
    decide(&store(&options(format!("redis://localhost:{}/7", redis.port())))).await.expect("by host name");
    let keyspace: String = redis.run(&["INFO", "keyspace"]).expect("INFO");
    for database in ["db3:keys=1", "db5:keys=1", "db7:keys=1"] {
        assert!(keyspace.contains(database), "{keyspace}");
    }
}

#[tokio::test]
async fn an_error_of_the_server_that_has_the_password_is_not_passed_on() {
    // Without AUTH it answers "unknown command 'AUTH', with args beginning with: 'limiter' 'hunter2'".
    let redis = Redis::start_with(&["--rename-command", "AUTH", "", "--rename-command", "HELLO", ""]);
    let error = redis.run::<()>(&["AUTH", "limiter", SECRET]).expect_err("there is no such command");
    assert!(error.to_string().contains(SECRET), "the server error has the password");
    for parameters in ["", "?protocol=resp3"] {
        let url = format!("redis://limiter:{SECRET}@127.0.0.1:{}/{parameters}", redis.port());
        let error = failure(&options(url)).await;
        assert!(!error.is_empty() && !error.contains("limiter"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_a_server_is_logged_once() {
    let redis = Redis::start();
    let _: String = redis.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect("CONFIG SET");
    let rules = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 5 } }]";
    let service = Plan::new(rules).redis(&redis.url()).start();
    wait::expect("a warning", || service.log().contains("maxmemory-policy allkeys-lru"));
    let log = service.log();
    let line = log.lines().find(|line| line.contains("Redis server")).expect("a line about the server");
    assert!(line.contains(&redis.version()), "{line}");
    assert!(line.contains("allkeys-lru") && line.contains("ms (within"), "{line}");
    assert_eq!(log.matches("WARN").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_that_would_refuse_to_write_is_warned_of_at_the_start() {
    let redis = Redis::start();
    let _: String = redis.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).expect("CONFIG SET");
    let _: String = redis.run(&["CONFIG", "SET", "maxmemory", "100mb"]).expect("CONFIG SET");
    let service = Plan::new("domain: d").redis(&redis.url()).start();
    wait::expect("a warning", || {
        service.log().contains("maxmemory-policy noeviction with a maxmemory of 104857600 bytes")
    });
}
