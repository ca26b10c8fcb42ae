//! A port full of idle connections, one client each.

use std::net::IpAddr;

use super::super::tests::*;

const PLACES: usize = 32;
const ATTACKERS: [IpAddr; 2] = [address(1), address(2)];

const fn address(number: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, number))
}

struct FullPort {
    admission: Admission,
    server: Arc<ConnectionServer>,
    metrics: Metrics,
    clients: Vec<SendRequest<Bytes>>,
}

impl FullPort {
    /// Both addresses have their maximum of connections.
    async fn new() -> Self {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total: PLACES, per_address: PLACES / 2 };
        let admission = Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc));
        let server = server(10_000, &metrics, &CancellationToken::new());
        let mut port = Self { admission, server, metrics, clients: Vec::new() };
        for n in 0..PLACES {
            let client = port.connect(ATTACKERS[n % 2]).await.expect("a place");
            port.clients.push(client);
        }
        assert!(port.connect(address(3)).await.is_none(), "the port is full");
        port
    }

    /// `None`: the connection is refused.
    async fn connect(&self, client: IpAddr) -> Option<SendRequest<Bytes>> {
        let admitted = Arc::new(self.admission.admit(client).ok()?);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        spawn(Arc::clone(&self.server).serve(theirs, placement(), (admitted, CertificateRights::default())));
        let (client, connection) = h2::client::handshake(ours).await.expect("HTTP/2");
        // The client's task answers PINGs.
        spawn(async { drop(connection.await) });
        Some(client)
    }

    async fn call_all(&self) {
        for client in &self.clients {
            let call = open_call(client, PATH, valid_request(), true).await;
            assert_eq!(call.status().await, "0");
        }
    }

    fn closed(&self) -> u64 {
        value(&self.metrics, "ratelimitd_closed_connections_total{port=\"grpc\",reason=\"idle\"}")
    }
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_call_make_place_for_a_caller() {
    let port = FullPort::new().await;
    tokio::time::sleep(Duration::from_secs(32)).await;
    assert_eq!(port.closed(), 2, "a sixteenth of the places is free");
    for _ in 0..20 {
        let caller = port.connect(address(3)).await.expect("a place");
        let call = open_call(&caller, PATH, valid_request(), true).await;
        assert_eq!(call.status().await, "0");
        // The next idle connection has closed.
        tokio::time::sleep(SETTLE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn connections_with_calls_keep_their_places() {
    let port = FullPort::new().await;
    for _ in 0..10 {
        port.call_all().await;
        tokio::time::sleep(Duration::from_secs(50)).await;
    }
    assert!(port.connect(address(3)).await.is_none(), "the port is full of callers");
    assert_eq!(port.closed(), 0);
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(port.connect(address(3)).await.is_some(), "they have had no call for a minute");
}
