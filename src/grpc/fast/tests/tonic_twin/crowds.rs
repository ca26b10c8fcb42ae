//! Many calls on one connection.

use futures_util::future::join_all;

use super::super::tonic_twin::*;

async fn send(client: &SendRequest<Bytes>, path: &str, data: Bytes) -> h2::client::ResponseFuture {
    let request = Request::post(format!("http://server{path}")).header("content-type", "application/grpc");
    let mut client = client.clone().ready().await.expect("an open connection");
    let (response, mut sent) =
        client.send_request(request.body(()).expect("valid"), false).expect("an open connection");
    sent.send_data(data, true).expect("an open call");
    response
}

/// Outcomes of equal calls sent together, each outcome once.
async fn outcomes(client: &SendRequest<Bytes>, calls: usize, data: &Bytes) -> Vec<String> {
    let mut responses = Vec::new();
    for _ in 0..calls {
        responses.push(send(client, PATH, data.clone()).await);
    }
    let mut seen = join_all(responses.into_iter().map(outcome)).await;
    seen.sort();
    seen.dedup();
    seen
}

#[tokio::test(start_paused = true)]
async fn nine_hundred_calls_at_once_are_answered() {
    for twin in [Twin::Ours, Twin::Tonic] {
        let client = client_of(twin.connect(Deciding::Answers), WINDOW_BYTES).await;
        let seen = outcomes(&client, 900, &valid_request()).await;
        assert_eq!(seen, ["200 application/grpc, 11 bytes 16, trailers 0"], "{twin:?}");
    }
}

/// More data than the windows hold: they are reopened whether a message is read or refused.
#[tokio::test(start_paused = true)]
async fn windows_are_given_back() {
    for twin in [Twin::Ours, Twin::Tonic] {
        let client = client_of(twin.connect(Deciding::Answers), WINDOW_BYTES).await;
        for _ in 0..4 {
            let seen = outcomes(&client, 40, &framed(0, &[0; 32 * 1024])).await;
            assert_eq!(seen, ["200 application/grpc, headers 11"], "{twin:?}");
        }
        let whole = [valid_request(), framed(0, &[0; 900])].concat();
        for _ in 0..40 {
            outcomes(&client, 40, &whole.clone().into()).await;
        }
        let seen = outcomes(&client, 1, &valid_request()).await;
        assert_eq!(seen, ["200 application/grpc, 11 bytes 16, trailers 0"], "{twin:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_reset_leaves_the_others_alone() {
    for deciding in [Deciding::Answers, Deciding::Hangs] {
        for twin in [Twin::Ours, Twin::Tonic] {
            let client = client_of(twin.connect_bounded(deciding, MAX_OPEN), WINDOW_BYTES).await;
            // More calls than the server allows to be open.
            for _ in 0..2 * MAX_OPEN {
                // Dropping the response resets the call.
                drop(send(&client, PATH, charged_request()).await);
                tokio::time::sleep(SETTLE).await;
            }
            let seen = outcomes(&client, 1, &valid_request()).await;
            assert_eq!(seen, ["200 application/grpc, 11 bytes 16, trailers 0"], "{twin:?}, {deciding:?}");
        }
    }
}

/// A decision that panics ends neither the connection nor its other calls, though one task polls them all.
#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_call_and_is_counted() {
    let metrics = Metrics::new(800_000).expect("different names");
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let server = server_of(twin_handler(Deciding::Panics, &metrics), MAX_OPEN, &CancellationToken::new());
    spawn(server.serve(theirs, placement(), admitted_place()));
    let client = client_of(ours, WINDOW_BYTES).await;
    let calls = [valid_request(), charged_request(), valid_request(), charged_request()];
    let mut responses = Vec::new();
    for data in calls {
        responses.push(send(&client, PATH, data).await);
    }
    let mut seen = Vec::new();
    for response in responses {
        seen.push(outcome(response).await);
    }
    let (ok, internal) =
        ("200 application/grpc, 11 bytes 16, trailers 0", "200 application/grpc, headers 13");
    assert_eq!(seen, [ok, internal, ok, internal]);
    let panics = value(&metrics, "ratelimitd_request_errors_total{kind=\"panic\",transport=\"grpc\"}");
    assert_eq!(panics, 2);
}

/// Health checks, watches, reflection and decisions share a connection.
#[tokio::test(start_paused = true)]
async fn all_services_share_a_connection() {
    for twin in [Twin::Ours, Twin::Tonic] {
        let client = client_of(twin.connect(Deciding::Answers), WINDOW_BYTES).await;
        let watch = send(&client, WATCH, framed(0, b"")).await.await.expect("an answer");
        let mut statuses = watch.into_body();
        let status = statuses.data().await.expect("a status").expect("an open stream");
        let health = outcome(send(&client, "/grpc.health.v1.Health/Check", framed(0, b"")).await).await;
        let seen = outcomes(&client, 2, &valid_request()).await;
        assert_eq!(&status[..], b"\0\0\0\0\x02\x08\x01", "{twin:?}");
        assert_eq!(health, "200 application/grpc, 7 bytes 0b, trailers 0", "{twin:?}");
        assert_eq!(seen, ["200 application/grpc, 11 bytes 16, trailers 0"], "{twin:?}");
    }
}
