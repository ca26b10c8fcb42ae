//! Which of two settings of one key is used: ours, or the one that a variable of `envoyproxy/ratelimit` means.

use std::collections::HashMap;

pub(crate) use crate::settings::error::Origin;
pub(crate) use crate::settings::layers::{Layer, RawSetting, RawValue};
use crate::settings::reader::Setting;

const PATH: &str = "rules.path";
const XDS: &str = "rules.xds.address";

/// Adds the translated settings to ours. Ours is used where both are set, and the returned line says so. A value of the
/// settings file that only repeats the default does not count as set: the shipped file contains every setting.
pub(crate) fn add_translated(ours: &mut Layer, translated: Layer, catalogue: &[Setting]) -> Vec<String> {
    let defaults: HashMap<&str, &str> =
        catalogue.iter().map(|setting| (setting.key, setting.default)).collect();
    let mut lines = Vec::new();
    // Rules from a server and a path of rules exclude each other.
    let path_repeats_default = ours
        .get(PATH)
        .is_some_and(|path| repeats_default(path, defaults.get(PATH).copied().unwrap_or_default()));
    if translated.contains_key(XDS) && path_repeats_default {
        ours.remove(PATH);
    }
    for (key, theirs) in translated {
        let default = defaults.get(key.as_str()).copied().unwrap_or_default();
        match ours.get(&key).filter(|written| !repeats_default(written, default)) {
            Some(written) => lines.extend(overruled(&key, written, &theirs)),
            None => {
                ours.insert(key, theirs);
            }
        }
    }
    lines
}

fn repeats_default(written: &RawSetting, default: &str) -> bool {
    let text = match &written.value {
        RawValue::Text(text) => text.as_str(),
        RawValue::Empty => "",
        RawValue::Null | RawValue::List(_) => return false,
    };
    matches!(written.origin, Origin::File { .. }) && text == default
}

/// `None` if theirs is a default, or if both say the same.
fn overruled(key: &str, written: &RawSetting, theirs: &RawSetting) -> Option<String> {
    let (RawValue::Text(text), Origin::Variable(variables)) = (&theirs.value, &theirs.origin) else {
        return None;
    };
    let is_same = matches!(&written.value, RawValue::Text(ours) if ours == text);
    (!is_same).then(|| format!("{variables}: not used, because {key} is set ({})", written.origin))
}
