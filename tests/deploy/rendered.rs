//! What Helm and Kustomize render, as JSON.

use serde_json::Value;

use crate::tools::{built, documents, in_project, run};

pub const CHART: &str = "deploy/helm/ratelimitd";
pub const OVERLAYS: [&str; 2] = ["deploy/kustomize/base", "deploy/kustomize/overlays/example"];
/// A Helm that was built from source would render for a Kubernetes of its own, older than the chart supports.
pub const FOR_KUBERNETES: [&str; 2] = ["--kube-version", "1.33.0"];
pub const NAMESPACE: &str = "ratelimit";

/// The files of values with which the chart is checked, from the root of the project.
pub fn values_files() -> Vec<String> {
    let folder = format!("{CHART}/ci");
    let files = std::fs::read_dir(in_project(&folder)).expect("the folder of values");
    let name = |file: std::fs::DirEntry| file.file_name().into_string().expect("a plain name");
    let mut files: Vec<_> = files.map(|file| format!("{folder}/{}", name(file.expect("a file")))).collect();
    files.sort_unstable();
    assert!(files.len() > 4, "{files:?}");
    files
}

/// The objects of the chart as YAML, with a file of values and further options of Helm.
pub fn chart_text(values: &str, options: &[&str]) -> String {
    let arguments = ["template", "edge", CHART, "--namespace", NAMESPACE, "--values", values];
    run(built("helm"), &[&arguments[..], &FOR_KUBERNETES, options].concat())
}

pub fn chart(values: &str, options: &[&str]) -> Vec<Value> {
    documents(&chart_text(values, options))
}

/// The objects of a file of values by its short name.
pub fn chart_of(name: &str) -> Vec<Value> {
    chart(&format!("{CHART}/ci/{name}-values.yaml"), &[])
}

/// The objects of a folder of Kustomize as YAML.
pub fn kustomized_text(folder: &str) -> String {
    run(built("kustomize"), &["build", folder])
}

pub fn kustomized(folder: &str) -> Vec<Value> {
    documents(&kustomized_text(folder))
}

/// All that the project renders: a name, and the objects.
pub fn everything() -> Vec<(String, String)> {
    let charts = values_files().into_iter().map(|file| (file.clone(), chart_text(&file, &[])));
    let overlays = OVERLAYS.map(|folder| (folder.to_owned(), kustomized_text(folder)));
    charts.chain(overlays).collect()
}

pub fn of_kind<'o>(objects: &'o [Value], kind: &str) -> &'o Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} among {:?}", kinds(objects)))
}

pub fn kinds(objects: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> =
        objects.iter().map(|object| object["kind"].as_str().expect("a kind")).collect();
    kinds.sort_unstable();
    kinds
}

pub fn pod(objects: &[Value]) -> &Value {
    &of_kind(objects, "Deployment")["spec"]["template"]["spec"]
}

/// The container of the service.
pub fn container(objects: &[Value]) -> &Value {
    &pod(objects)["containers"][0]
}
