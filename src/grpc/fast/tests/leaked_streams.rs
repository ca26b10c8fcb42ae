//! A client that makes h2 leak streams gets GOAWAY, then its connection is closed (`h2_leak.rs` shows the leak).

use tokio::io::DuplexStream;

use super::super::tests::*;
use super::raw_client::RawClient;

/// Connection window that the client never opens.
const WINDOW: usize = 65_535;

/// A client that does not open its connection window.
struct Miser {
    client: SendRequest<Bytes>,
    connection: JoinHandle<Option<Reason>>,
    served: JoinHandle<()>,
    /// These answers exhaust the window: h2 would open it again if they were dropped.
    _answers: Vec<RecvStream>,
}

#[expect(clippy::disallowed_methods, reason = "the tests join the task or drop their runtime")]
fn end_of(connection: h2::client::Connection<DuplexStream>) -> JoinHandle<Option<Reason>> {
    tokio::spawn(async { connection.await.err().and_then(|error| error.reason()) })
}

impl Miser {
    /// Takes answers until the window is exhausted.
    async fn connect(server: Arc<ConnectionServer>, admitted: Arc<Admitted>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1024 * 1024);
        let served = spawn(server.serve(theirs, placement(), (admitted, CertificateRights::default())));
        let (client, connection) = h2::client::handshake(ours).await.expect("HTTP/2");
        let connection = end_of(connection);
        let (mut answers, mut taken) = (Vec::new(), 0);
        while taken < WINDOW {
            let answered = open_call(&client, PATH, valid_request(), true).await;
            let mut answer = answered.headers().await.into_body();
            taken += answer.data().await.expect("not the end").expect("data").len();
            answers.push(answer);
        }
        Self { client, connection, served, _answers: answers }
    }

    /// Sends calls, and resets each when its answer's headers have arrived. Returns the number of calls.
    async fn reset(&self, calls: usize) -> usize {
        for call in 0..calls {
            let Ok(mut client) = self.client.clone().ready().await else { return call };
            let request = Request::post(format!("http://server{}", PATH))
                .header("content-type", "application/grpc")
                .body(())
                .expect("valid");
            let Ok((response, mut sent)) = client.send_request(request, false) else { return call };
            if sent.send_data(valid_request(), true).is_err() || response.await.is_err() {
                return call;
            }
        }
        calls
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaks_streams_gets_goaway() {
    let metrics = Metrics::new(800_000).expect("different names");
    let bounds = ConnectionBounds { total: 1, per_address: 1 };
    let port = Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc));
    let admitted = port.admit([127, 0, 0, 1].into()).expect("the first connection");
    let server = server(10_000, &metrics, &CancellationToken::new());
    let miser = Miser::connect(server, Arc::new(admitted)).await;
    let leaked = "ratelimitd_closed_connections_total{port=\"grpc\",reason=\"leaked_streams\"}";
    assert_eq!((miser.reset(60).await, value(&metrics, leaked)), (60, 0));
    // h2 does not let its clients send a call after GOAWAY.
    let more = miser.reset(10_000).await;
    assert!((4..200).contains(&more), "{more} more calls");
    assert_eq!(value(&metrics, leaked), 1);
    assert_eq!(miser.connection.await.expect("no panic"), None, "it ends without an error");
    miser.served.await.expect("no panic");
}

/// Envoy and gRPC clients reset calls at their deadline, and go on opening the window.
#[tokio::test(start_paused = true)]
async fn a_client_that_resets_calls_and_takes_answers_is_never_closed() {
    let session = Session::start(65_535).await;
    for _ in 0..100 {
        for _ in 0..100 {
            let reset = open_call(&session.client, PATH, valid_request(), true).await;
            reset.headers().await;
        }
        let taken = open_call(&session.client, PATH, valid_request(), true).await;
        assert_eq!(taken.status().await, "0");
    }
    assert!(!session.served.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_on_to_leak_streams_is_closed() {
    const CALLS: u32 = 500;
    let metrics = Metrics::new(800_000).expect("different names");
    let server = server(10_000, &metrics, &CancellationToken::new());
    let (mut attacker, served) = RawClient::connect(server).await;
    while attacker.taken < WINDOW {
        attacker.call(10).await.expect("an open connection");
    }
    let mut reset = 0;
    while attacker.call(CALLS).await.is_ok() && attacker.reset_last(CALLS).await.is_ok() {
        reset += CALLS;
    }
    served.await.expect("no panic");
    assert!((2_048..2_048 + 2 * CALLS).contains(&reset), "{reset} calls");
    assert_eq!(attacker.reasons.first(), Some(&Reason::NO_ERROR));
    assert_eq!(attacker.reasons.last(), Some(&Reason::ENHANCE_YOUR_CALM), "{:?}", attacker.reasons);
}
