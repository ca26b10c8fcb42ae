//! A budget of tokens in two steps: an estimate before the call of a language model, the real cost after it.
//!
//! ```text
//! cargo run --example budget -- --requests 3 --estimate 2000 --cost 53
//! ```

mod options;
#[expect(dead_code, reason = "the other programs use the rest")]
mod ratelimit;

use clap::Parser;
use options::Connection;
use ratelimit::OnFailure;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Without a decision: deny the request, or go on
    #[arg(long, default_value = "deny")]
    on_failure: OnFailure,
    #[arg(long, default_value = "acme")]
    tenant: String,
    #[arg(long, default_value_t = 3)]
    requests: u32,
    #[arg(long, default_value_t = 2000)]
    estimate: u64,
    /// What the model reports in the end
    #[arg(long, default_value_t = 53)]
    cost: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let limit = options.connection.open(options.on_failure)?;
    let tenant = [("tenant", options.tenant.as_str())];
    for request in 0..options.requests {
        let answer = limit.ask("callers", &tenant, options.estimate).await;
        if !answer.admitted {
            println!("request {request} denied, next try in {:.3} s", answer.wait.as_secs_f64());
            continue;
        }
        // Here the call of the model. If it fails, settle 0.
        let cost = options.cost;
        match limit.settle("callers", &tenant, &answer.receipt, cost).await {
            Ok(()) => println!("request {request} cost {cost}, settled"),
            Err(error) => println!("request {request} cost {cost}, not settled: {}", error.message()),
        }
    }
    Ok(())
}
