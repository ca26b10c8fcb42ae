//! A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//!
//! ```text
//! cargo run --example worker -- --jobs 10 --url http://localhost:9000
//! cargo run --example worker -- --jobs 10 --key third_party_queue
//! ```

#![expect(clippy::disallowed_methods, reason = "an example has no part in the clock of the service")]

mod options;
#[expect(dead_code, reason = "the other programs use the rest")]
mod ratelimit;

use std::time::Instant;

use clap::Parser;
use options::Connection;
use ratelimit::OnFailure;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use tokio::time::sleep;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Without a decision: wait until ratelimitd is back, or go on
    #[arg(long, default_value = "deny")]
    on_failure: OnFailure,
    /// `third_party`, or `third_party_queue`
    #[arg(long, default_value = "third_party")]
    key: String,
    /// The third party
    #[arg(long, default_value = "api.example.com")]
    name: String,
    #[arg(long, default_value_t = 10)]
    jobs: u32,
    /// What to call; without it nothing is called
    #[arg(long)]
    url: Option<String>,
}

/// Calls the third party. Returns its `Retry-After` if it has had too many calls.
async fn call(url: &str) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let answer = reqwest::get(url).await?;
    let retry_after = answer.headers().get(RETRY_AFTER).map_or(Ok("1"), |value| value.to_str())?;
    Ok((answer.status() == StatusCode::TOO_MANY_REQUESTS).then(|| retry_after.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let limit = options.connection.open(options.on_failure)?;
    let start = Instant::now();
    let third_party: &[(&str, &str)] = &[(&options.key, &options.name)];
    for job in 0..options.jobs {
        let mut denied = limit.wait("callers", third_party).await;
        while let Some(url) = &options.url
            && let Some(retry_after) = call(url).await?
        {
            // No worker calls it until then.
            sleep(limit.pause("callers", third_party, &retry_after).await).await;
            denied += limit.wait("callers", third_party).await;
        }
        println!("job {job} after {:.3} s, denied {denied}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
