//! The files of recorded answers.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::yaml;

/// One case: rules, and requests with the answers of the reference.
pub struct Case {
    pub name: String,
    /// Environment variables of the reference.
    pub settings: Vec<(String, String)>,
    /// Rule files: name and text.
    pub rules: Vec<(String, String)>,
    pub steps: Vec<Step>,
    /// The file, to find the units that it names.
    pub text: String,
}

/// A request and its answer.
pub struct Step {
    pub request: StepRequest,
    /// The answer, in the form of [`super::observed`].
    pub recorded: Value,
}

pub enum StepRequest {
    /// A call of `ShouldRateLimit`, sent this many times.
    Call {
        request: Value,
        repeat: u64,
    },
    Http {
        method: String,
        path: String,
        body: Option<String>,
    },
}

/// The folder of the recorded answers.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/conformance")
}

/// Every case, in the order of the names.
pub fn all() -> Vec<Case> {
    let entries = std::fs::read_dir(folder()).expect("the recorded answers");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|extension| extension == "yaml") && !path.ends_with("errors.yaml")
    });
    paths.sort();
    paths.iter().map(|path| read(std::fs::read_to_string(path).expect("a case"))).collect()
}

fn read(text: String) -> Case {
    let case = yaml::parse(&text);
    let steps = case["steps"].as_array().expect("steps").iter().map(read_step).collect();
    let name = case["name"].as_str().expect("a name").to_owned();
    Case { name, settings: texts(&case["settings"]), rules: texts(&case["rules"]), steps, text }
}

/// The texts of a map, in order. None if there is no map.
pub fn texts(map: &Value) -> Vec<(String, String)> {
    let fields = map.as_object().into_iter().flatten();
    fields.map(|(name, text)| (name.clone(), text.as_str().expect("text").to_owned())).collect()
}

fn read_step(step: &Value) -> Step {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut recorded = step.as_object().expect("a step").clone();
    let request = match (recorded.remove("call"), recorded.remove("http")) {
        (Some(request), None) => {
            let repeat = recorded.remove("repeat").map_or(1, |repeat| repeat.as_u64().expect("a number"));
            StepRequest::Call { request, repeat }
        }
        (None, Some(http)) => StepRequest::Http {
            method: text(&http["method"]).expect("a method"),
            path: text(&http["path"]).expect("a path"),
            body: text(&http["body"]),
        },
        _ => panic!("a step is a call or an HTTP request: {step}"),
    };
    Step { request, recorded: Value::Object(recorded) }
}
