//! Clients over their limit that send what no usual client sends. A proxy that admits after an error of ratelimitd must
//! not take the answer to such a request for one, nor let other clients pass because of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use tokio::net::TcpSocket;

use super::example::{Example, Running};
use super::{PATIENT, WRITES};

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// What the limits of the examples admit before they refill in the year of this test.
const UNREFILLED: (&str, &str) = ("unit: minute", "unit: year");
/// More than a client is admitted.
const REQUESTS: usize = 20;
const ROUNDS: usize = 8;

/// A client of the proxy: the address from which it connects.
struct Client<'p> {
    proxy: &'p Running,
    address: Ipv4Addr,
}

impl Client<'_> {
    /// Sends all bytes, and then reads what comes. `None`: no answer, because the proxy has closed the connection.
    fn send(&self, request: &[u8]) -> Option<u16> {
        let mut stream = self.connect();
        // A proxy that refuses a request may close before it has all of it.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }

    fn get(&self, headers: &str) -> Option<u16> {
        self.send(format!("GET / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n").as_bytes())
    }

    fn use_up(&self) {
        let statuses: Vec<Option<u16>> = (0..REQUESTS).map(|_| self.get("")).collect();
        assert_eq!(statuses.last(), Some(&Some(429)), "{} has no limit: {statuses:?}", self.address);
    }

    fn connect(&self) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let connected = runtime.expect("a runtime").block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((self.address, 0).into())?;
            socket.connect((Ipv4Addr::LOCALHOST, self.proxy.port()).into()).await?.into_std()
        });
        let stream = connected.expect("a connection");
        stream.set_nonblocking(false).expect("a socket option");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket option");
        stream
    }
}

/// Requests that ratelimitd, or the proxy, may refuse, each with its name.
fn hostile_requests() -> Vec<(String, Vec<u8>)> {
    let mut requests = Vec::new();
    let mut add = |name: String, line: &str, headers: &str, body: &[u8]| {
        let head = format!("{line} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n");
        requests.push((name, [head.as_bytes(), body].concat()));
    };
    for kib in [16, 30, 40, 64, 80, 100, 200, 500, 900] {
        add(
            format!("a header of {kib} KiB"),
            "GET /",
            &format!("x-long: {}\r\n", "x".repeat(kib << 10)),
            b"",
        );
        let many: String = (0..kib / 4).map(|at| format!("x-{at}: {}\r\n", "x".repeat(4_000))).collect();
        add(format!("headers of {kib} KiB"), "GET /", &many, b"");
        add(format!("a path of {kib} KiB"), &format!("GET /{}", "x".repeat(kib << 10)), "", b"");
    }
    let names: String = (0..200).map(|at| format!("x-{at}: 1\r\n")).collect();
    add("200 headers".to_owned(), "GET /", &names, b"");
    let body = vec![b'x'; 1 << 20];
    add("a body".to_owned(), "POST /", "content-length: 1048576\r\n", &body);
    add(
        "a chunked body".to_owned(),
        "POST /",
        "transfer-encoding: chunked\r\n",
        &[b"100000\r\n", &body[..], b"\r\n0\r\n\r\n"].concat(),
    );
    for path in
        ["/a/../health", "/a/%2e%2e/health", "/a/..;/health", "//health", "/%68ealth", "/%", "/\\..\\a"]
    {
        add(format!("the path {path}"), &format!("GET {path}"), "", b"");
    }
    for value in ["-", "", "9.9.9.9", "::ffff:9.9.9.9", "unknown"] {
        add(format!("X-Forwarded-For: {value}"), "GET /", &format!("x-forwarded-for: {value}\r\n"), b"");
    }
    requests
}

/// Neither the client that sends such requests is admitted, nor another one that is over its limit meanwhile.
pub fn check(example: &Example, edits: &[(&str, &str)]) {
    let proxy = Running::start(example, &[edits, &[UNREFILLED]].concat(), PATIENT);
    let (attacker, other) =
        (Client { proxy: &proxy, address: ATTACKER }, Client { proxy: &proxy, address: OTHER });
    attacker.use_up();
    other.use_up();
    let requests = hostile_requests();
    let (admitted, of_other) = thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let all = (0..ROUNDS).flat_map(|_| &requests);
            let admitted =
                all.filter(|(_, request)| attacker.send(request).is_some_and(|status| status < 400));
            admitted.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        });
        let mut of_other = Vec::new();
        while !attack.is_finished() {
            of_other.push(other.get(""));
        }
        (attack.join().expect("an attack"), of_other)
    });
    let passed = of_other.iter().filter(|status| **status != Some(429)).count();
    assert!(
        admitted.is_empty() && passed == 0,
        "{} of {} requests of the attacker were admitted: {admitted:?}; of the {} of another client over its limit {passed} \
         were not denied",
        admitted.len(),
        ROUNDS * requests.len(),
        of_other.len()
    );
    assert!(of_other.len() >= ROUNDS, "{of_other:?}");
}

/// The lines that the page of nginx names for a map with `normalize`: its answer to a path with dots is 400, and
/// without them the 500 of `auth_request`.
pub fn check_paths_of_nginx(example: &Example) {
    let page = crate::tools::read("examples/nginx/README.md");
    let lines = page.lines().find(|line| line.starts_with("if ($request_uri")).expect("the line of the page");
    let refusing = format!("{lines}\n        location / {{");
    let normalize =
        ("descriptors:\n  # A client", "normalize: path\nkeep: path != /health\ndescriptors:\n  # A client");
    let paths =
        ["/a/../health", "/a/%2e%2E/health", "/a/..;b/health", "/a/..%2fhealth", "/a/.", "/..\\health?b"];
    for (edits, expected) in [
        (vec![normalize, UNREFILLED], 500),
        (vec![normalize, UNREFILLED, ("        location / {", refusing.as_str())], 400),
    ] {
        let proxy = Running::start(example, &edits, PATIENT);
        let client = Client { proxy: &proxy, address: ATTACKER };
        client.use_up();
        let get = |path: &str| {
            client.send(format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n").as_bytes())
        };
        for path in paths {
            assert_eq!(get(path), Some(expected), "{path}");
        }
        for path in ["/a/..b/", "/a/.b?c=../d", "//health", "/%68ealth", "/health;a"] {
            assert_eq!(get(path), Some(429), "{path}");
        }
        assert_eq!(get("/health"), Some(200));
    }
}

/// With the changes for a load balancer in front: a client that reaches the proxy without it has a limit, whatever it
/// says about its address. So has one whose address the load balancer does not know.
pub fn check_around_the_balancer(example: &Example) {
    let proxy = Running::start(example, &[example.behind_a_proxy, &[UNREFILLED]].concat(), PATIENT);
    let balancer = Client { proxy: &proxy, address: Ipv4Addr::LOCALHOST };
    let post = |client: &Client<'_>, address: &str| {
        let headers = format!("content-length: 0\r\nx-forwarded-for: {address}\r\n");
        client.send(format!("POST / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n").as_bytes())
    };
    let around = Client { proxy: &proxy, address: ATTACKER };
    let forged: Vec<Option<u16>> =
        (0..REQUESTS).map(|at| post(&around, &format!("203.0.113.{at}"))).collect();
    let admitted = |statuses: &[Option<u16>]| statuses.iter().filter(|status| **status != Some(429)).count();
    assert!((1..=WRITES).contains(&admitted(&forged)), "{forged:?}");
    for unknown in ["-", "", "unknown"] {
        let statuses: Vec<Option<u16>> = (0..REQUESTS).map(|_| post(&balancer, unknown)).collect();
        assert!(admitted(&statuses) <= WRITES, "{unknown}: {statuses:?}");
    }
}
