//! The Helm chart and the Kustomize base: what they render, and that the service starts with the settings in it.

use serde_json::{Value, json};

use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::tools::{built, document, documents, read, run, try_run};

const CHART: &str = "deploy/helm/ratelimitd";
const RULES: &str = "rules.edge\\.yaml=domain: edge";
/// A Helm that was built from source would render for a Kubernetes of its own, older than the chart supports.
const FOR_KUBERNETES: [&str; 2] = ["--kube-version", "1.33.0"];
const URL: &str = "redis.url=redis://redis:6379";

/// Every option of the chart that adds something.
const ALL_OPTIONS: [&str; 11] = [
    URL,
    "redis.passwordSecret.name=redis-password",
    "autoscaling.enabled=true",
    "serviceMonitor.enabled=true",
    "serviceMonitor.labels.release=prometheus",
    "prometheusRule.enabled=true",
    "settings.server.drain=10s",
    "priorityClassName=high",
    "nodeSelector.disk=ssd",
    "env[0].name=RATELIMITD__SHADOW_MODE",
    "env[0].value=\"true\"",
];

fn template(options: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["template", "edge", CHART, "--namespace", "ratelimit", "--set", RULES];
    arguments.extend(FOR_KUBERNETES);
    arguments.extend(options.iter().flat_map(|option| ["--set", *option]));
    documents(&run(built("helm"), &arguments))
}

fn kustomized() -> Vec<Value> {
    documents(&run(built("kustomize"), &["build", "deploy/kustomize/base"]))
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> &'o Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} among {:?}", kinds(objects)))
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> =
        objects.iter().map(|object| object["kind"].as_str().expect("a kind")).collect();
    kinds.sort_unstable();
    kinds
}

/// What a cluster with the restricted pod security standard demands, and what a rollout without lost calls needs.
fn assert_runs_restricted(objects: &[Value]) {
    let deployment = of_kind(objects, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let expected = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(container["securityContext"], expected);
    assert_eq!(container["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "http"}));
    assert_eq!(container["livenessProbe"]["httpGet"], json!({"path": "/livez", "port": "http"}));
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let ports: Vec<&Value> = container["ports"].as_array().expect("ports").iter().collect();
    assert_eq!(
        ports,
        [&json!({"name": "grpc", "containerPort": 8081}), &json!({"name": "http", "containerPort": 8080})]
    );
    for volume in container["volumeMounts"].as_array().expect("volumes") {
        assert!(volume["subPath"].is_null(), "the kubelet never updates a file with a subPath: {volume}");
    }
    // The selectors of the other objects find the pods of the Deployment.
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selectors = [
        &deployment["spec"]["selector"]["matchLabels"],
        &of_kind(objects, "Service")["spec"]["selector"],
        &of_kind(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &of_kind(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ];
    for selector in selectors {
        let selector = selector.as_object().expect("a selector");
        assert!(
            !selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == *value),
            "{selector:?}"
        );
    }
}

/// The text of a file in any of the ConfigMaps.
fn config_file<'o>(objects: &'o [Value], name: &str) -> &'o str {
    let texts = objects.iter().filter(|object| object["kind"] == "ConfigMap");
    let found = texts.filter_map(|object| object["data"][name].as_str()).next();
    found.unwrap_or_else(|| panic!("no ConfigMap has {name}"))
}

/// Adds the settings of a file to the plan: keys with dots, values as they are.
fn with_settings(plan: Plan, prefix: &str, settings: &Value) -> Plan {
    let settings = settings.as_object().expect("a map").iter();
    settings.fold(plan, |plan, (key, value)| match (prefix, value) {
        ("", Value::Object(_)) => with_settings(plan, key, value),
        (_, Value::Object(_)) => with_settings(plan, &format!("{prefix}.{key}"), value),
        _ => plan.set(&format!("{prefix}.{key}"), value.clone()),
    })
}

/// The service starts with the settings and the rules in the ConfigMaps, except for the places that only a pod has.
fn assert_service_starts(objects: &[Value]) {
    let redis = Redis::start();
    let mut settings = document(config_file(objects, "ratelimitd.yaml"));
    assert_eq!(settings["rules"]["path"], "/etc/ratelimitd/rules");
    assert_eq!(settings["store"]["kind"], "redis");
    let mounts = &of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"];
    let mounted =
        |path: &str| mounts.as_array().expect("mounts").iter().any(|mount| mount["mountPath"] == path);
    assert!(mounted("/etc/ratelimitd/rules") && mounted("/etc/ratelimitd/settings"), "{mounts}");
    let store = settings["store"]["redis"].as_object_mut().expect("the settings of Redis");
    if let Some(file) = store.remove("password_file") {
        assert_eq!(file, "/etc/ratelimitd/redis/password");
        assert!(mounted("/etc/ratelimitd/redis"), "{mounts}");
    }
    settings.as_object_mut().expect("a map").remove("rules");
    let plan = Plan::default().rule_file("edge.yaml", config_file(objects, "edge.yaml"));
    with_settings(plan, "", &settings).redis(&redis.url()).start();
}

#[test]
fn helm_accepts_the_chart() {
    let printed = run(built("helm"), &["lint", "--strict", CHART, "--set", RULES]);
    assert!(printed.contains("1 chart(s) linted, 0 chart(s) failed"), "{printed}");
}

#[test]
fn the_chart_renders_what_a_restricted_cluster_accepts() {
    let objects = template(&[URL]);
    let expected =
        ["ConfigMap", "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"];
    assert_eq!(kinds(&objects), expected);
    assert_runs_restricted(&objects);
    assert_service_starts(&objects);
}

#[test]
fn the_chart_renders_with_every_option() {
    let objects = template(&ALL_OPTIONS);
    assert_runs_restricted(&objects);
    assert_service_starts(&objects);
    let deployment = of_kind(&objects, "Deployment");
    assert!(deployment["spec"]["replicas"].is_null(), "the autoscaler sets the replicas");
    assert_eq!(
        of_kind(&objects, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"],
        "edge-ratelimitd"
    );
    assert_eq!(of_kind(&objects, "ServiceMonitor")["metadata"]["labels"]["release"], "prometheus");
    let rules = &of_kind(&objects, "PrometheusRule")["spec"]["groups"][0]["rules"];
    assert!(rules.as_array().expect("rules").len() > 5, "{rules}");
}

#[test]
fn the_chart_refuses_values_that_cannot_work() {
    let refused = [
        (vec![], "no rules: set `rules`"),
        (vec!["--set", RULES, "--set", "replica=3"], "replica"),
        (vec!["--set", RULES, "--set", "redis.url=redis://:secret@redis:6379"], "url"),
        (vec!["--set", "rules.edge=domain: edge"], "edge"),
    ];
    for (options, reason) in refused {
        let arguments = [vec!["template", "edge", CHART], FOR_KUBERNETES.to_vec(), options].concat();
        let (succeeds, output) = try_run(built("helm"), &arguments);
        assert!(!succeeds && output.contains(reason), "{arguments:?}: {output}");
    }
}

#[test]
fn the_base_renders_what_a_restricted_cluster_accepts() {
    let objects = kustomized();
    assert_runs_restricted(&objects);
    assert_service_starts(&objects);
    let deployment = of_kind(&objects, "Deployment");
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().expect("volumes");
    let names: Vec<&str> = volumes.iter().filter_map(|volume| volume["configMap"]["name"].as_str()).collect();
    // Changed settings restart the pods, changed rules do not.
    assert!(names[0].starts_with("ratelimitd-settings-") && names[1] == "ratelimitd-rules", "{names:?}");
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
