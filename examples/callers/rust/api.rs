//! An API server that answers 429 with Retry-After.
//!
//! ```text
//! cargo run --example api -- --port 9000
//! curl -i -H 'X-User: ann' localhost:9000
//! ```

#[expect(dead_code, reason = "the worker uses the other half")]
mod ratelimit;

use axum::Router;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use clap::Parser;
use ratelimit::{Answer, RateLimit};

#[derive(Parser)]
struct Options {
    /// The gRPC port of ratelimitd
    #[arg(long, default_value = "127.0.0.1:8081")]
    address: String,
    /// The port to serve
    #[arg(long, default_value_t = 9000)]
    port: u16,
}

async fn hello(State(limit): State<RateLimit>, headers: HeaderMap) -> Response {
    let user = headers.get("x-user").and_then(|value| value.to_str().ok()).unwrap_or("anonymous");
    match limit.ask("callers", "user", user).await {
        Ok(Answer::Admitted(_)) => "hello\n".into_response(),
        Ok(Answer::Denied(wait)) => {
            // Whole seconds, rounded up: a client that comes back then is admitted.
            let seconds = wait.as_micros().div_ceil(1_000_000).to_string();
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds)], "too many requests\n").into_response()
        }
        Err(error) => {
            // Without a decision this API lets the request pass. An API whose upstream must be protected answers 503.
            eprintln!("no decision: {error}");
            "hello\n".into_response()
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let limit = RateLimit::new(&options.address)?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", options.port)).await?;
    axum::serve(listener, Router::new().route("/", get(hello)).with_state(limit)).await?;
    Ok(())
}
