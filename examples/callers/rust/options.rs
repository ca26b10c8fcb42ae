//! The arguments that all programs have.

use std::time::Duration;

use clap::Args;
use tonic::transport::Error;

use crate::ratelimit::{OnFailure, RateLimit};

#[derive(Args)]
pub struct Connection {
    /// The gRPC port of ratelimitd
    #[arg(long, default_value = "127.0.0.1:8081")]
    address: String,
    /// Seconds for one decision, with its tries
    #[arg(long, default_value = "0.25", value_parser = seconds)]
    deadline: Duration,
}

impl Connection {
    pub fn open(&self, on_failure: OnFailure) -> Result<RateLimit, Error> {
        RateLimit::new(&self.address, on_failure, self.deadline)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}
