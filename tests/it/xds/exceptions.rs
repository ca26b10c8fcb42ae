//! Exceptions of files over rules of an xDS server: each changes alone, and keeps the other.

use std::fs;

use envoy_types::pb::google::protobuf::Any;
use serde_json::{Value, json};

use super::plan;
use super::resource::resource;
use crate::support::ads::AdsServer;
use crate::support::grpc::{Code, Rls};
use crate::support::{http, wait};

/// As behind Envoy Gateway, the user is not the first entry.
fn rules(requests_per_unit: u32) -> Any {
    let limit = json!({"unit": "YEAR", "requests_per_unit": requests_per_unit});
    let user = json!({"key": "user", "rate_limit": limit});
    let route = json!({"key": "route", "value": "route", "descriptors": [user]});
    resource(&json!({"name": "eg/http", "domain": "eg/http", "descriptors": [route]}))
}

fn rows(limit: u32) -> String {
    format!(
        "- {{ domain: \"eg/*\", key: user, value: acme, limit: {limit} }}\n\
         - {{ domain: \"eg/*\", key: user, value: evil, block: true }}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_change_limits_by_xds_and_both_are_replaced_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows.yaml");
    fs::write(&file, rows(7)).expect("a file of exceptions");
    let server = AdsServer::start().await;
    let path = folder.path().display().to_string();
    let service = plan(&server).set("exceptions.path", path).wait_for_livez().start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut send = async |user: &str| {
        let (code, status) = rls.send_one("eg/http", &[("route", "route"), ("user", user)]).await;
        (code, status.limit_remaining)
    };
    server.set("1", vec![rules(4)]);
    server.expect_ack("1").await;
    assert_eq!(send("acme").await, (Code::Ok, 6));
    assert_eq!(send("other").await, (Code::Ok, 3));
    assert_eq!(send("evil").await, (Code::OverLimit, 0));

    // New rules keep the rows, and what is used stays used.
    server.set("2", vec![rules(5)]);
    server.expect_ack("2").await;
    assert_eq!(send("acme").await, (Code::Ok, 5));
    assert_eq!(send("other").await, (Code::Ok, 3));
    assert_eq!(send("evil").await, (Code::OverLimit, 0));

    // New rows keep the rules.
    let beside = folder.path().join(".rows");
    fs::write(&beside, rows(10)).expect("a file of exceptions");
    fs::rename(&beside, &file).expect("a rename");
    wait::expect("the rows are loaded", || {
        let page = http::get(service.admin_port(), "/exceptions", &[]).expect("an answer").body;
        serde_json::from_str::<Value>(&page).expect("JSON")["loads_ok"] == json!(2)
    });
    assert_eq!(send("acme").await, (Code::Ok, 7));
    assert_eq!(send("other").await, (Code::Ok, 2));
}
