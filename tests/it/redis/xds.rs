//! Started as Envoy Gateway starts `envoyproxy/ratelimit`: by its variables, with rules from its server over TLS with
//! client certificates, and counters in Redis.

use crate::support::ads::AdsServer;
use crate::support::certificates::Authority;
use crate::support::ratelimit::Environment;
use crate::support::redis::Redis;
use crate::support::wait;
use crate::xds::envoy_gateway::play_all;
use crate::xds::tls::acceptor;

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_envoy_gateway_start_the_service_on_its_rules() {
    let authority = Authority::new();
    let client = authority.certificate_for(&["envoy-rate-limit"]);
    // A window may turn over once, and not again within seconds.
    for _ in 0..2 {
        let redis = Redis::start();
        let server = AdsServer::start().await;
        server.set_tls(Some(acceptor(&authority, &authority.certificate_for(&["envoy-gateway"]))));
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let service = Environment::new()
            .redis(redis.port())
            .set("CONFIG_TYPE", "GRPC_XDS_SOTW")
            .set("CONFIG_GRPC_XDS_SERVER_URL", &server.address())
            .set("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit")
            .set("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")
            .set("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &path(&client.certificate))
            .set("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &path(&client.key))
            .set("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &path(&authority.file()))
            // The test's server has no name of its own.
            .set("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy-gateway")
            .set("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
            .start();
        // Before the first rules.
        wait::expect("health", || service.healthcheck() == 200);
        if play_all(&server, service.grpc_port).await {
            let node = server.received()[0].request.node.clone().expect("a node");
            assert_eq!(node.id, "envoy-ratelimit");
            return;
        }
    }
    panic!("the hour turned over twice");
}
