//! The Helm chart and the Kustomize base: what they render and refuse, and that the service runs as the pod says.

use serde_json::{Value, json};

use crate::pod::Pod;
use crate::rendered::{
    CHART, FOR_KUBERNETES, OVERLAYS, chart, chart_of, chart_text, container, everything, kinds, kustomized,
    of_kind, pod, values_files,
};
use crate::support::http;
use crate::tools::{built, document, documents, elements, in_project, read, run, try_run};

/// Values that are enough, so that a further option is the reason for a refusal.
const PLAIN: &str = "deploy/helm/ratelimitd/ci/plain-values.yaml";

/// What a cluster with the restricted pod security standard demands, and what a rollout without lost calls needs.
fn assert_runs_restricted(name: &str, objects: &[Value]) {
    let deployment = of_kind(objects, "Deployment");
    let (pod, container) = (pod(objects), container(objects));
    assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
    assert_eq!(pod["serviceAccountName"], of_kind(objects, "ServiceAccount")["metadata"]["name"], "{name}");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
    let expected = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container["securityContext"], expected, "{name}");
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0, "{name}");
    // The refresh of DNS in Envoy, the cache of CoreDNS, and 5 s for Kubernetes to publish an address.
    assert_eq!(deployment["spec"]["minReadySeconds"], 5 + 30 + 5, "{name}");
    for volume in elements(&container["volumeMounts"]) {
        assert!(volume["subPath"].is_null(), "the kubelet never updates a file with a subPath: {volume}");
    }
    // The selectors of the other objects find the pods of the Deployment, and the Service finds the ports.
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let mut selectors = vec![
        &deployment["spec"]["selector"]["matchLabels"],
        &of_kind(objects, "Service")["spec"]["selector"],
        &of_kind(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ];
    let policies = objects.iter().filter(|object| object["kind"] == "NetworkPolicy");
    selectors.extend(policies.map(|policy| &policy["spec"]["podSelector"]["matchLabels"]));
    for selector in selectors {
        let selector = selector.as_object().expect("a selector");
        assert!(
            !selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value),
            "{name}: {selector:?}"
        );
    }
    let names = |ports: &Value, key: &str| elements(ports).map(|port| port[key].clone()).collect::<Vec<_>>();
    let service = &of_kind(objects, "Service")["spec"]["ports"];
    assert_eq!(names(service, "targetPort"), names(&container["ports"], "name"), "{name}");
}

#[test]
fn helm_accepts_the_chart() {
    for values in values_files() {
        let arguments = ["lint", "--strict", CHART, "--values", &values];
        let printed = run(built("helm"), &[&arguments[..], &FOR_KUBERNETES].concat());
        assert!(printed.contains("1 chart(s) linted, 0 chart(s) failed"), "{values}: {printed}");
    }
}

#[test]
fn all_that_is_rendered_runs_in_a_restricted_cluster() {
    for (name, text) in everything() {
        assert_runs_restricted(&name, &documents(&text));
    }
}

/// What kube-score demands and this service does not want: a CPU limit throttles it, and an image with a version needs
/// no pull at each start. OpenShift chooses the users, and the base has no network policy without its component.
/// deploy/README.md has them, too.
const NOT_WANTED: [(&str, &str); 3] = [
    ("", "container-image-pull-policy"),
    ("openshift", "container-security-context-user-group-id"),
    ("kustomize/base", "pod-networkpolicy"),
];

#[test]
fn kube_score_finds_nothing_critical_in_all_that_is_rendered() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    let path = file.path().to_str().expect("a path of text");
    for (name, text) in everything() {
        std::fs::write(file.path(), text).expect("room for a file");
        let not_wanted = NOT_WANTED.iter().filter(|(part, _)| name.contains(part));
        let ignored = not_wanted.flat_map(|(_, test)| ["--ignore-test", *test]).collect::<Vec<_>>();
        let arguments = ["score", "--ignore-container-cpu-limit", "--output-format", "ci", path];
        let (succeeds, printed) = try_run(built("kube-score"), &[&arguments[..], &ignored].concat());
        assert!(succeeds && printed.contains("[OK]"), "{name}:\n{printed}");
    }
    let page = read("deploy/README.md");
    assert!(page.contains("kube-score score --ignore-container-cpu-limit --ignore-test container-image"));
    for (_, test) in NOT_WANTED {
        assert!(page.contains(test), "deploy/README.md does not have {test}");
    }
}

#[test]
fn the_service_runs_with_what_is_rendered_and_its_probes_succeed() {
    let objects = values_files().iter().map(|file| chart(file, &[])).collect::<Vec<_>>();
    for objects in objects.into_iter().chain(OVERLAYS.map(kustomized)) {
        let pod = Pod::start(&objects);
        pod.wait_for("startupProbe");
        // Rules of an xDS server do not arrive here, and a service without rules is not ready.
        if kinds(&objects).iter().filter(|kind| **kind == "ConfigMap").count() > 1 {
            pod.wait_for("readinessProbe");
        }
        if elements(&container(&objects)["ports"]).any(|port| port["name"] == "metrics") {
            let metrics = http::get(pod.metrics_port, "/metrics", &[]).expect("the port of the metrics");
            assert!(metrics.body.contains("ratelimitd_ready 1"), "{}", metrics.body);
        }
    }
}

/// The default of every setting, as the shipped file has them.
#[test]
fn the_schema_of_the_chart_takes_the_shipped_settings() {
    let mut settings = document(&read("config/ratelimitd.yaml"));
    // The chart refuses any other path.
    settings["rules"]["path"] = "/etc/ratelimitd/rules".into();
    let values = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(values.path(), json!({ "settings": settings }).to_string()).expect("room for a file");
    chart_text(PLAIN, &["--values", values.path().to_str().expect("a path of text")]);
}

#[test]
fn every_option_of_the_chart_is_rendered() {
    let objects = chart_of("every-option");
    let deployment = of_kind(&objects, "Deployment");
    assert!(deployment["spec"]["replicas"].is_null(), "the autoscaler sets the replicas");
    let autoscaler = of_kind(&objects, "HorizontalPodAutoscaler");
    assert_eq!(autoscaler["spec"]["scaleTargetRef"]["name"], "edge-ratelimitd");
    let pod = pod(&objects);
    assert_eq!(pod["serviceAccountName"], "ratelimiter");
    assert_eq!(pod["initContainers"][0]["name"], "fetch-exceptions");
    let names = |list: &Value| elements(list).map(|element| element["name"].clone()).collect::<Vec<_>>();
    for name in
        ["exceptions", "redis-ca", "grpc-certificate", "grpc-client-ca", "http-certificate", "scratch"]
    {
        assert!(names(&pod["volumes"]).contains(&name.into()), "{name}");
        assert!(names(&container(&objects)["volumeMounts"]).contains(&name.into()), "{name}");
    }
    assert_eq!(container(&objects)["env"][0]["valueFrom"]["secretKeyRef"]["name"], "traces");
    let monitor = of_kind(&objects, "ServiceMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["endpoints"][0]["scheme"], "https");
    let rules = &of_kind(&objects, "PrometheusRule")["spec"]["groups"][0]["rules"];
    for rule in elements(rules) {
        let url = rule["annotations"]["runbook_url"].as_str().expect("a URL");
        assert!(url.starts_with("https://runbooks.example.com/ratelimitd#ratelimitd"), "{url}");
    }
    assert!(rules.as_array().expect("rules").len() > 20, "{rules}");
    let text = chart_text(PLAIN, &["--set", "prometheusRule.enabled=true"]);
    let rules = of_kind(&documents(&text), "PrometheusRule").to_string();
    assert!(rules.contains("RatelimitdSlow") && !rules.contains("runbook_url"), "{rules}");
    assert!(
        !text.contains("https://example.com/ratelimitd"),
        "comments of the file are not rendered: {text}"
    );
}

#[test]
fn ports_with_client_certificates_have_matching_probes_and_protocols() {
    let objects = chart_of("mtls");
    let health = |arguments: &[&str]| {
        let words = ["ratelimitd", "health", "--config", "/etc/ratelimitd/settings/ratelimitd.yaml"];
        json!({ "command": words.iter().chain(arguments).collect::<Vec<_>>() })
    };
    assert_eq!(container(&objects)["readinessProbe"]["exec"], health(&[]));
    assert_eq!(container(&objects)["livenessProbe"]["exec"], health(&["--live"]));
    let image = container(&objects)["image"].as_str().expect("an image");
    assert!(image.starts_with("registry.example.com/ratelimitd@sha256:"), "{image}");
    let protocols = |objects: &[Value]| {
        let ports = elements(&of_kind(objects, "Service")["spec"]["ports"]);
        ports.map(|port| port["appProtocol"].as_str().expect("a protocol").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(protocols(&objects), ["https", "https", "http"]);
    assert_eq!(of_kind(&objects, "ServiceMonitor")["spec"]["endpoints"][0]["port"], "metrics");
    let plain = chart_of("plain");
    assert_eq!(protocols(&plain), ["kubernetes.io/h2c", "http"]);
    assert_eq!(container(&plain)["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "http"}));
    let with_tls = chart_of("every-option");
    assert_eq!(container(&with_tls)["livenessProbe"]["httpGet"]["scheme"], "HTTPS");
}

/// The command of the page, as `helm template`.
#[test]
fn the_command_of_the_page_installs_the_chart() {
    let page = read("deploy/README.md");
    let (_, command) = page.split_once("    helm install ").expect("a command");
    let (command, _) = command.split_once("\n\n").expect("its end");
    let words = command.replace("\\\n", " ").replace(['\'', '\\'], "").replace("edge.yaml=", "edge\\.yaml=");
    let words = words.split_whitespace().filter(|word| *word != "--create-namespace");
    let arguments: Vec<_> = ["template"].into_iter().chain(words).chain(FOR_KUBERNETES).collect();
    let objects = documents(&run(built("helm"), &arguments));
    assert_eq!(container(&objects)["image"], "registry.example.com/ratelimitd:0.1.0");
    assert!(of_kind(&objects, "NetworkPolicy").to_string().contains("envoy-gateway-system"));
}

/// The commands of the page that check the settings before a rollout find what the schema of the chart cannot know.
#[test]
fn the_settings_of_the_chart_can_be_checked_before_a_rollout() {
    let page = read("deploy/README.md");
    let (_, command) = page.split_once("--show-only templates/configmap.yaml | ").expect("a command");
    let (filter, _) = command.split_once(" > ratelimitd.yaml").expect("its end");
    for (level, is_right) in [("info", true), ("inof", false)] {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let text = chart_text(PLAIN, &["--set", &format!("settings.log.level={level}")]);
        std::fs::write(path("rendered.yaml"), text).expect("room for a file");
        let settings = run("sh", &["-c", &format!("{filter} < {}", path("rendered.yaml"))]);
        std::fs::write(path("ratelimitd.yaml"), settings).expect("room for a file");
        let arguments = ["settings", "--config", &path("ratelimitd.yaml")];
        let (succeeds, printed) = try_run(env!("CARGO_BIN_EXE_ratelimitd"), &arguments);
        assert_eq!(succeeds, is_right, "{printed}");
        assert_eq!(printed.contains("log.level: expected one of"), !is_right, "{printed}");
    }
}

/// The patches of the page, over the overlay with everything.
#[test]
fn the_patches_of_the_page_apply_and_the_service_runs_with_them() {
    let page = read("deploy/README.md");
    let (_, patches) = page.split_once("```yaml\nreplicas:").expect("the patches");
    let (patches, _) = patches.split_once("```").expect("their end");
    let folder = tempfile::TempDir::new_in(in_project("target")).expect("a folder");
    let text = format!("resources: [../../{}]\nreplicas:{patches}", OVERLAYS[1]);
    std::fs::write(folder.path().join("kustomization.yaml"), text).expect("room for a file");
    let objects = kustomized(&folder.path().display().to_string());
    assert_eq!(of_kind(&objects, "Deployment")["spec"]["replicas"], 3);
    assert!(!kinds(&objects).contains(&"HorizontalPodAutoscaler"), "{:?}", kinds(&objects));
    let ingress = &of_kind(&objects, "NetworkPolicy")["spec"]["ingress"];
    assert_eq!(ingress[0]["ports"], json!([{"port": "grpc"}]));
    Pod::start(&objects).wait_for("readinessProbe");
}

#[test]
fn openshift_chooses_the_users() {
    let expected = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(pod(&chart_of("openshift"))["securityContext"], expected);
}

#[test]
fn the_network_policy_admits_the_named_callers_only() {
    let namespace =
        |name: &str| json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}});
    let objects = chart_of("mtls");
    let policy = &of_kind(&objects, "NetworkPolicy")["spec"];
    let ingress = json!([
        {"from": [namespace("ingress")], "ports": [{"port": "grpc"}, {"port": "http"}]},
        {"from": [namespace("monitoring")], "ports": [{"port": "metrics"}]},
    ]);
    assert_eq!(policy["ingress"], ingress);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["egress"][0]["to"], json!([namespace("kube-system")]));
    assert_eq!(policy["egress"][1]["ports"], json!([{"port": 6379}]));
    let objects = kustomized(OVERLAYS[1]);
    let policy = &of_kind(&objects, "NetworkPolicy")["spec"];
    assert_eq!(policy["ingress"][0]["from"], json!([namespace("envoy-gateway-system")]));
    assert!(!objects.iter().any(|object| object["metadata"]["name"] == "ratelimitd-callers"));
}

#[test]
fn the_chart_refuses_values_that_cannot_work() {
    let refused = [
        ("rules=null", "no rules: set `rules`"),
        ("replica=3", "'replica' not allowed"),
        ("redis.url=redis://:secret@redis:6379", "redis/url"),
        ("rules.edge=domain: edge", "'edge'"),
        ("image.digest=latest", "image/digest"),
        ("image.repository=", "no image is published"),
        ("settings.store.redis.tmieout=15ms", "'tmieout' not allowed"),
        ("settings.server.drain=5", "server/drain': got number, want string"),
        ("settings.server.drain=31s", "after 31s of drain, calls get up to 30 s to end"),
        ("settings.traces.headers=authorization:secret", "RATELIMITD__TRACES__HEADERS"),
        ("settings.rules.xds.headers=authorization:secret", "RATELIMITD__RULES__XDS__HEADERS"),
        ("settings.store.redis.connections=65", "maximum: got 65, want 64"),
        ("settings.shadow_mode=ture", "shadow_mode"),
        ("settings.server.http.address=0.0.0.0:9000", "the port in a pod is :8080"),
        ("networkPolicy.callerNamespaces=null", "no callers"),
        ("networkPolicy.callers[0].podSelector.matchLabels.app=envoy", "of the namespace \"ratelimit\" only"),
        ("serviceMonitor.enabled=true", "no Prometheus may connect"),
        ("networkPolicy.egress.enabled=true", "may not connect to Redis"),
        (
            "redis.url=,networkPolicy.egress.enabled=true,settings.rules.xds.address=gateway:18001",
            "settings.rules.xds.address is set",
        ),
        ("redis.url=rediss://r:6379,redis.ca.secret=a,redis.ca.configMap=b", "a Secret or a ConfigMap"),
        ("redis.ca.secret=a", "redis.ca, redis.certificateSecret: the connection to Redis has no TLS"),
        ("redis.certificateSecret=a", "redis.url to an address that begins with rediss://"),
        ("redis.url=,redis.ca.configMap=a", "the connection to Redis has no TLS"),
        ("tls.grpc.clientCa.secret=a", "in tls.grpc.certificateSecret"),
        ("tls.http.clientCa.configMap=a", "in tls.http.certificateSecret"),
        ("tls.http.clientSan=edge", "in tls.http.certificateSecret"),
        ("settings.server.admin.tls.client_ca_file=/ca.crt", "settings.server.admin.tls: client_ca_file"),
        (
            "settings.rules.path=/data/ratelimit/config",
            "from /etc/ratelimitd/rules. Remove settings.rules.path",
        ),
        ("exceptions.existingConfigMap=a,settings.exceptions.path=/data", "Remove settings.exceptions.path"),
        ("existingRulesConfigMap=a", "rules: existingRulesConfigMap is set, too"),
        ("settings.store.redis.password=secret", "or name the Secret in redis.passwordSecret"),
        ("settings.store.redis.sentinel.password=secret", "RATELIMITD__STORE__REDIS__SENTINEL__PASSWORD"),
        (
            "settings.store.redis.per_second.url=redis://:secret@redis:6379",
            "RATELIMITD__STORE__REDIS__PER_SECOND__URL",
        ),
        ("settings.store.redis.home.url=redis://:secret@redis:6379", "RATELIMITD__STORE__REDIS__HOME__URL"),
        ("settings.secrets.key=0123456789abcdef0123456789abcdef", "in extraEnv as RATELIMITD__SECRETS__KEY"),
        ("exceptions.existingConfigMap=a,exceptions.volume.emptyDir.medium=Memory", "set one of files"),
        (
            "serviceMonitor.enabled=true,tls.http.certificateSecret=a,networkPolicy.monitoringNamespaces={m}",
            "the HTTP port has TLS",
        ),
    ];
    for (options, reason) in refused {
        let arguments =
            ["template", "edge", CHART, "--namespace", "ratelimit", "-f", PLAIN, "--set", options];
        let (succeeds, output) = try_run(built("helm"), &[&arguments[..], &FOR_KUBERNETES].concat());
        assert!(!succeeds && output.contains(reason), "{options}: {output}");
    }
}

/// A copy of the component without its callers.
#[test]
fn kustomize_refuses_a_network_policy_without_callers() {
    let folder = tempfile::TempDir::new_in(in_project("target")).expect("a folder");
    let kustomization = format!(
        "resources: [{base}]\ncomponents: [{component}]\n",
        base = "../../deploy/kustomize/base",
        component = "../../deploy/kustomize/components/network-policy",
    );
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization).expect("room for a file");
    let path = folder.path().display().to_string();
    let (succeeds, output) = try_run(built("kustomize"), &["build", &path]);
    assert!(!succeeds && output.contains("ratelimitd-callers"), "{output}");
}

#[test]
fn changed_settings_restart_the_pods_and_changed_rules_do_not() {
    let objects = kustomized(OVERLAYS[0]);
    let names: Vec<&str> = elements(&pod(&objects)["volumes"])
        .filter_map(|volume| volume["configMap"]["name"].as_str())
        .collect();
    assert!(names[0].starts_with("ratelimitd-settings-") && names[1] == "ratelimitd-rules", "{names:?}");
    let checksum = |option: &str| {
        let objects = chart(PLAIN, &["--set", option]);
        let template = &of_kind(&objects, "Deployment")["spec"]["template"];
        template["metadata"]["annotations"]["checksum/settings"].clone()
    };
    let plain = checksum("settings.shadow_mode=false");
    assert_ne!(plain, checksum("settings.shadow_mode=true"));
    assert_eq!(plain, checksum("settings.shadow_mode=false,rules.more\\.yaml=domain: more"));
}

/// The examples for other ingresses are for controllers that cannot run here: only their form is checked.
#[test]
fn the_examples_for_ingresses_are_kubernetes_objects() {
    for path in [
        "examples/contour/ratelimit.yaml",
        "examples/emissary/ratelimit.yaml",
        "examples/envoy-gateway/llm-tokens.yaml",
        "examples/istio/envoyfilter.yaml",
    ] {
        let text = read(path);
        for object in documents(&text) {
            for field in ["apiVersion", "kind", "metadata", "spec"] {
                assert!(!object[field].is_null(), "{path} has an object without {field}");
            }
        }
    }
}

/// Envoy AI Gateway finds the service under the name that docs/recipes-proxies.md gives to the release.
#[test]
fn the_values_of_the_page_make_a_quota_service() {
    let page = read("docs/recipes-proxies.md");
    let (_, rest) = page.split_once("```yaml helm\n").expect("a block of values");
    let (values, _) = rest.split_once("```").expect("a block ends");
    let (_, address) =
        page.split_once("`controller.quotaRateLimitServiceAddr`").expect("the gateway's value");
    let release = "envoy-ai-gateway-ratelimitd";
    assert!(address.contains(&format!("`{release}.envoy-gateway-system`")), "{address}");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), values).expect("room for the values");
    let path = file.path().display().to_string();
    let arguments = ["template", release, CHART, "--namespace", "envoy-gateway-system", "--values", &path];
    let objects = documents(&run(built("helm"), &[&arguments[..], &FOR_KUBERNETES].concat()));
    let service = of_kind(&objects, "Service");
    assert_eq!(service["metadata"]["name"], release);
    assert_eq!(service["spec"]["ports"][0]["port"], 8081);
    let settings =
        document(of_kind(&objects, "ConfigMap")["data"]["ratelimitd.yaml"].as_str().expect("text"));
    assert_eq!(settings["rules"]["xds"]["node_id"], "envoy-ai-gateway-ratelimit");
    assert_eq!(settings["rules"]["xds"]["start_without_rules"], true);
    assert_eq!(settings["upgrades"][0]["charging"], "postpaid");
}
