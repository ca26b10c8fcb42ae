//! An API server that answers 429 with Retry-After.
//!
//! ```text
//! cargo run --example api -- --port 9000
//! curl -i -H 'X-User: ann' localhost:9000
//! ```

mod options;
#[expect(dead_code, reason = "the other programs use the rest")]
mod ratelimit;

use axum::Router;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use clap::Parser;
use options::Connection;
use ratelimit::{OnFailure, RateLimit};

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Without a decision: let the request pass, or answer 503
    #[arg(long, default_value = "allow")]
    on_failure: OnFailure,
    /// The port to serve
    #[arg(long, default_value_t = 9000)]
    port: u16,
}

async fn hello(State(limit): State<RateLimit>, headers: HeaderMap) -> Response {
    let user = headers.get("x-user").and_then(|value| value.to_str().ok()).unwrap_or("anonymous");
    let answer = limit.ask("callers", &[("user", user)], 1).await;
    if answer.admitted {
        return "hello\n".into_response();
    }
    // Whole seconds, rounded up: a client that comes back then is admitted.
    let seconds = answer.wait.as_micros().div_ceil(1_000_000).to_string();
    let (status, text) = if answer.decided {
        (StatusCode::TOO_MANY_REQUESTS, "too many requests\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no decision\n")
    };
    (status, [(RETRY_AFTER, seconds)], text).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let limit = options.connection.open(options.on_failure)?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", options.port)).await?;
    axum::serve(listener, Router::new().route("/", get(hello)).with_state(limit)).await?;
    Ok(())
}
