//! A call to `/json` while Redis is unavailable.

use reqwest::StatusCode;

use crate::service::http::{RULES, json_request, post};
use crate::support::http;
use crate::support::process::Plan;
use crate::support::redis::Redis;

#[tokio::test]
async fn an_unavailable_store_and_a_bad_request_have_different_answers() {
    let mut redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).start();
    assert_eq!(post(&service, json_request("user")).await.0, StatusCode::OK);
    redis.stop();
    let (status, _, text) = post(&service, json_request("user")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.starts_with("counters unavailable ("), "{text}");
    assert!(!text.contains("127.0.0.1"), "where Redis is, is no caller's business: {text}");
    redis.restart();
    let answers = || http::get(service.http_port(), "/livez", &[]).is_ok_and(|answer| answer.status == 200);
    assert!(answers());
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    assert!(
        metrics.contains(r#"ratelimitd_request_errors_total{kind="store",transport="http"} 1"#),
        "{metrics}"
    );
}
