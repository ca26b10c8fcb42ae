//! A crawler or a queue worker that calls a third party and never exceeds what the third party allows.
//!
//! ```text
//! cargo run --example worker -- --jobs 10
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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let limit = options.connection.open(options.on_failure)?;
    let start = Instant::now();
    for job in 0..options.jobs {
        let denied = limit.wait("callers", &[(&options.key, &options.name)]).await;
        // Here the call to the third party.
        println!("job {job} after {:.3} s, denied {denied}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
