//! Makes a story that fails small: takes parts of its JSON away, as long as it fails.

use serde_json::Value;

use crate::story::Story;

/// Where a part of a JSON value is: the members and elements on the way to it.
type Path = Vec<usize>;

/// The most stories that are tried: each is played twice or more.
const MOST_TRIED: u32 = 400;

/// A story that fails, of which as much as possible is left out.
pub fn shrink(story: &Story, fails: &mut dyn FnMut(&Story) -> bool) -> Story {
    let (mut smallest, mut tried) = (story.clone(), 0);
    loop {
        let before = smallest.clone();
        let value: Value = serde_json::from_str(&smallest.line()).unwrap_or_default();
        for path in paths(&value) {
            let value: Value = serde_json::from_str(&smallest.line()).unwrap_or_default();
            for smaller in smaller_at(&value, &path) {
                let Ok(candidate) = serde_json::from_value::<Story>(smaller) else { continue };
                // A part without members has no text.
                let Ok(candidate) = serde_json::from_str::<Story>(&candidate.line()) else { continue };
                tried += 1;
                if tried > MOST_TRIED {
                    return smallest;
                }
                if candidate != smallest && fails(&candidate) {
                    smallest = candidate;
                    break;
                }
            }
        }
        if smallest == before {
            return smallest;
        }
    }
}

/// The parts of a value: the last first, so that a part that goes moves none that is still to come.
fn paths(value: &Value) -> Vec<Path> {
    let mut found = Vec::new();
    collect(value, &mut Path::new(), &mut found);
    found.sort_by(|a, b| b.cmp(a));
    // Whole steps, then what is inside.
    found.sort_by_key(Vec::len);
    found
}

fn collect(value: &Value, here: &mut Path, found: &mut Vec<Path>) {
    let children: Vec<&Value> = match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(members) => members.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (index, child) in children.into_iter().enumerate() {
        here.push(index);
        found.push(here.clone());
        collect(child, here, found);
        here.pop();
    }
}

/// The value without the part at the path, or with a smaller number there.
fn smaller_at(value: &Value, path: &[usize]) -> Vec<Value> {
    let (Some((&last, parents)), mut without) = (path.split_last(), value.clone()) else { return Vec::new() };
    let Some(parent) = parents.iter().try_fold(&mut without, |value, &index| child(value, index)) else {
        return Vec::new();
    };
    let number = match parent {
        Value::Array(elements) if last < elements.len() => elements.remove(last),
        Value::Object(members) => {
            let Some(key) = members.keys().nth(last).cloned() else { return Vec::new() };
            members.remove(&key).unwrap_or_default()
        }
        _ => return Vec::new(),
    };
    let mut smaller = vec![without];
    for number in number.as_i64().into_iter().flat_map(|number| [0, 1, number / 2, number / 10 * 9]) {
        let mut changed = value.clone();
        if let Some(part) = path.iter().try_fold(&mut changed, |value, &index| child(value, index)) {
            *part = number.into();
            smaller.push(changed);
        }
    }
    smaller
}

fn child(value: &mut Value, index: usize) -> Option<&mut Value> {
    match value {
        Value::Array(elements) => elements.get_mut(index),
        Value::Object(members) => members.values_mut().nth(index),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
