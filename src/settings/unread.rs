//! Settings without an effect: misspelled names of ours in the environment, and settings that no longer do anything.
//! An operator who sets one expects an effect.

use std::fmt;

use super::layers::{Layer, PREFIX, RawSetting, SEPARATOR};
use super::service_link::is_service_link;

/// A variable that has no effect. Its value may be a password, so it is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadVariable(String);

impl fmt::Display for UnreadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "environment variable {name} is not read: settings are {PREFIX}{SEPARATOR}SECTION{SEPARATOR}KEY"
        )
    }
}

/// Settings of earlier versions, each with what holds instead.
const WITHOUT_EFFECT: [(&str, &str); 1] = [(
    "metrics.mapping_file",
    "names and labels of the metrics stay those of the default mapping, and metrics.response_time sets the unit of the \
     response times",
)];

/// Takes the settings without an effect out of `written`, and returns a warning for each.
pub(super) fn take_without_effect(written: &mut Layer) -> Vec<String> {
    let warn = |(key, instead): &(&str, &str)| {
        let RawSetting { origin, .. } = written.remove(*key)?;
        Some(format!("{origin}: {key} has no effect: {instead}"))
    };
    WITHOUT_EFFECT.iter().filter_map(warn).collect()
}

/// The given variables that have no effect although their names promise one.
pub(super) fn unread_variables(variables: &[(String, String)]) -> Vec<UnreadVariable> {
    let is_unread = |(name, value): &&(String, String)| {
        let name = name.to_uppercase();
        let starts_like_ours = name.starts_with(&format!("{PREFIX}_"));
        // Two underscores: read, or refused with the other settings.
        let is_ours = name.starts_with(&format!("{PREFIX}{SEPARATOR}"));
        starts_like_ours && !is_ours && !is_service_link(&name, value)
    };
    let mut unread: Vec<_> =
        variables.iter().filter(is_unread).map(|(name, _)| UnreadVariable(name.clone())).collect();
    unread.sort_by(|a, b| a.0.cmp(&b.0));
    unread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(variables: &[(&str, &str)]) -> Vec<String> {
        let variables: Vec<_> =
            variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        unread_variables(&variables).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_start_like_ours_are_told() {
        let set = [
            ("RATELIMITD_STORE_KNID", "redis"),
            ("PATH", "/bin"),
            ("REDIS_PASSWORD", "hunter2"),
            ("RATELIMITD__STORE__KIND", "redis"),
        ];
        let expected =
            ["environment variable RATELIMITD_STORE_KNID is not read: settings are RATELIMITD__SECTION__KEY"];
        assert_eq!(warnings(&set), expected);
    }

    #[test]
    fn variables_that_kubernetes_sets_for_services_are_not_told() {
        let links = [
            ("RATELIMITD_PORT", "tcp://10.0.0.1:8081"),
            ("RATELIMITD_SERVICE_HOST", "10.0.0.1"),
            ("RATELIMITD_SERVICE_PORT", "8081"),
            ("RATELIMITD_SERVICE_PORT_GRPC", "8081"),
            ("RATELIMITD_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("RATELIMITD_PORT_8081_TCP_ADDR", "10.0.0.1"),
            ("RATELIMITD_ADMIN_PORT", "tcp://10.0.0.2:6070"),
        ];
        assert_eq!(warnings(&links), [""; 0]);
        assert_eq!(warnings(&[("RATELIMITD_PORT", "8081")]).len(), 1);
    }
}
