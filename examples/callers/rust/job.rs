//! A job that reserves a place and an estimate of its tokens, works, and commits the real cost once. The address is that
//! of the HTTP port, because Envoy's protocol lacks holds.
//!
//! ```text
//! cargo run --example job -- --address localhost:8080 --estimate 50000 --cost 31840 --seconds 1
//! ```

use std::time::Duration;

use clap::Parser;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

#[derive(Parser)]
struct Options {
    /// Host and port of the HTTP port
    #[arg(long, default_value = "localhost:8080")]
    address: String,
    /// Seconds for one try
    #[arg(long, default_value_t = 0.25)]
    deadline: f64,
    #[arg(long, default_value = "acme")]
    tenant: String,
    #[arg(long, default_value_t = 50_000)]
    estimate: u64,
    /// What the job has used in the end
    #[arg(long, default_value_t = 31_840)]
    cost: u64,
    /// How long the job works
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
}

/// Calls until there is an answer. A commit is booked once, however often it is sent; what a reservation without an
/// answer took stays charged.
async fn call(options: &Options, path: &str, hits: u64, more: (&str, &str)) -> Value {
    let entries = json!([{"key": "budget", "value": options.tenant}]);
    let mut body = json!({"domain": "callers", "descriptors": [{"entries": entries, "hitsAddend": hits}]});
    body[more.0] = more.1.into();
    let url = format!("http://{}{path}", options.address);
    loop {
        let request = Client::new().post(&url).timeout(Duration::from_secs_f64(options.deadline));
        let reason = match request.body(body.to_string()).send().await {
            Ok(answer) => {
                let status = answer.status();
                let text = answer.text().await.unwrap_or_default();
                // In JSON, 503 is a commit's result.
                match serde_json::from_str(&text) {
                    Ok(answer) => return answer,
                    Err(_) => format!("{status} {}", text.trim_end()),
                }
            }
            Err(error) => error.to_string(),
        };
        eprintln!("no decision: {reason}");
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let options = Options::parse();
    let id = loop {
        let answer = call(&options, "/holds", options.estimate, ("ttl", "30m")).await;
        if let Some(id) = answer["id"].as_str() {
            break id.to_owned();
        }
        println!("job waits 1.000 s");
        sleep(Duration::from_secs(1)).await;
    };
    println!("job starts");
    // Here the work. A job that fails before it used anything commits 0.
    let renewals = async {
        loop {
            // At least twice a minute, the rule's period. Without an answer, the place stays until then.
            sleep(Duration::from_secs_f64((options.seconds / 2.0).min(30.0))).await;
            let answer = call(&options, "/holds/renew", 0, ("id", &id)).await;
            if answer["overallCode"] == "OVER_LIMIT" {
                println!("job lost its place");
            }
        }
    };
    tokio::select! {
        () = sleep(Duration::from_secs_f64(options.seconds)) => {}
        () = renewals => {}
    }
    // Store the id with the job, so that another process can commit it after a crash.
    let answer = call(&options, "/holds/commit", options.cost, ("id", &id)).await;
    println!("job cost {}, {}", options.cost, answer["result"].as_str().unwrap_or("unknown"));
}
