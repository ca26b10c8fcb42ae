//! One protobuf message to `ShouldRateLimit`, on a connection that stays open.
//!
//! Holds: the call is answered, or refused as invalid, as malformed or as too large; no other status comes, and the
//! connection is not lost.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{panics, service};
use raw_codec::Raw;

#[path = "../../tests/it/service/grpc/raw_codec.rs"]
mod raw_codec;

const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const PATIENCE: Duration = Duration::from_secs(20);

struct Caller {
    runtime: Runtime,
    channel: Channel,
}

fn caller() -> &'static Caller {
    static CALLER: OnceLock<Caller> = OnceLock::new();
    CALLER.get_or_init(|| {
        let endpoint = Endpoint::from_shared(format!("http://{}", service::grpc())).expect("a URL");
        // The connection's tasks run while a call waits, and calls come one after another.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("caller")
            .enable_all()
            .build()
            .expect("a runtime");
        let channel = runtime.block_on(endpoint.timeout(PATIENCE).connect()).expect("the service listens");
        Caller { runtime, channel }
    })
}

/// Sends `data` as a message.
pub fn run(data: &[u8]) {
    panics::watch();
    let Caller { runtime, channel } = caller();
    let answer = runtime.block_on(async {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = tonic::Request::new(Bytes::copy_from_slice(data));
        client.unary(request, PathAndQuery::from_static(CALL), Raw).await
    });
    match answer {
        Ok(answer) => assert!(matches!(answer.get_ref()[..], [8, 1 | 2, ..]), "overall_code: {answer:?}"),
        Err(status) => assert!(
            matches!(status.code(), Code::InvalidArgument | Code::Internal | Code::OutOfRange),
            "{status:?}"
        ),
    }
    panics::assert_none();
}
