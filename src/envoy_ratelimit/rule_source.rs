//! Translates where the rules are: files, or an xDS server.

use std::path::PathBuf;
use std::time::Duration;

use super::certificates;
use super::draft::Draft;

const DIRECTORY: [&str; 3] = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
const WATCH_ROOT: &str = "RUNTIME_WATCH_ROOT";

pub(super) fn translate(draft: &mut Draft) {
    match draft.text("CONFIG_TYPE") {
        "FILE" => translate_directory(draft),
        XDS => translate_xds(draft),
        "" => {
            draft.warn("CONFIG_TYPE is empty; reading rules from files");
            translate_directory(draft);
        }
        _ => draft.refuse("CONFIG_TYPE", format!("FILE or {}, in capitals", XDS)),
    }
    draft.copy_flag("rules.merge_domains", "MERGE_DOMAIN_CONFIG");
    draft.copy_flag("rules.require_domain", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED");
}

fn translate_directory(draft: &mut Draft) {
    let mut path = PathBuf::new();
    for name in DIRECTORY {
        // As in `envoyproxy/ratelimit`, a part's leading slash does not make it absolute.
        let part = draft.text(name);
        path.push(if path.as_os_str().is_empty() { part } else { part.trim_start_matches('/') });
    }
    if path.as_os_str().is_empty() {
        path.push(".");
    }
    draft.set("rules.path", path.display().to_string(), &DIRECTORY);
    draft.set("rules.directory", directory(draft), &[&DIRECTORY[..], &[WATCH_ROOT]].concat());
}

/// Which files of the directory are read.
fn directory(draft: &Draft) -> &'static str {
    match (draft.flag(WATCH_ROOT), draft.text("RUNTIME_SUBDIRECTORY")) {
        // `envoyproxy/ratelimit` reads no rules then, so a missing directory is not a mistake.
        (true, "") => "optional",
        (true, _) => "any_files_and_beside",
        (false, _) => "any_files",
    }
}

/// Value of `CONFIG_TYPE` that selects rules over xDS.
const XDS: &str = "GRPC_XDS_SOTW";

const URL: &str = "CONFIG_GRPC_XDS_SERVER_URL";
const METADATA: &str = "CONFIG_GRPC_XDS_NODE_METADATA";
const BACKOFF: [&str; 2] = ["XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"];

/// Range of `rules.xds.backoff`.
const BACKOFF_BOUNDS: [Duration; 2] = [Duration::from_millis(10), Duration::from_hours(1)];
/// Default of `rules.xds.backoff.initial`.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

fn translate_xds(draft: &mut Draft) {
    // A gRPC resolver can precede the address.
    let url = draft.text(URL);
    let address = url.strip_prefix("dns:///").unwrap_or(url).to_owned();
    draft.set("rules.xds.address", address, &["CONFIG_TYPE", URL]);
    draft.copy_text("rules.xds.node_id", "CONFIG_GRPC_XDS_NODE_ID");
    draft.copy_text("rules.xds.headers", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS");
    let metadata = metadata(draft);
    draft.set_if_given("rules.xds.node_metadata", metadata, METADATA);
    certificates::translate_xds(draft);
    translate_backoff(draft);
    let max_size = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";
    draft.set_if_given("rules.xds.max_message_bytes", draft.whole(max_size).to_string(), max_size);
    draft.copy_flag("rules.xds.backoff.jitter", "XDS_CLIENT_BACKOFF_JITTER");
    draft.copy_flag("rules.xds.start_without_rules", "FORCE_START_WITHOUT_INITIAL_CONFIG");
}

/// As in `envoyproxy/ratelimit`, a pair without `=` is dropped.
fn metadata(draft: &mut Draft) -> String {
    let text = draft.text(METADATA).to_owned();
    let is_pair = |pair: &&str| pair.trim().split_once('=').is_some_and(|(key, _)| !key.is_empty());
    let (pairs, others): (Vec<&str>, Vec<&str>) = text.split(',').partition(is_pair);
    if others.iter().any(|other| !other.is_empty()) {
        draft.warn(format!("{METADATA}: what is not key=value is dropped"));
    }
    pairs.join(",")
}

/// Keeps ratelimitd's own pauses, which double, unless the environment sets some; envoyproxy/ratelimit never doubles
/// its pauses.
fn translate_backoff(draft: &mut Draft) {
    let [initial_given, max_given] = BACKOFF.map(|name| draft.is_set(name));
    if !initial_given && !max_given {
        return;
    }
    let [least, most] = BACKOFF_BOUNDS;
    let [initial, max] = BACKOFF.map(|name| draft.duration(name).clamp(least, most));
    let initial = if initial_given { initial } else { INITIAL_BACKOFF.min(max) };
    for (key, pause) in [("rules.xds.backoff.initial", initial), ("rules.xds.backoff.max", max.max(initial))]
    {
        draft.set(key, humantime::format_duration(pause).to_string(), &BACKOFF);
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::load_settings::load_settings_with;
    use crate::settings::{Settings, SettingsError};

    fn load(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let owned = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let both = [("CONFIG_TYPE".to_owned(), "GRPC_XDS_SOTW".to_owned())].into_iter().chain(owned);
        load_settings_with(None, both, Some("ratelimit")).map(|loaded| loaded.settings)
    }

    /// The variables of Envoy Gateway that concern the rules.
    const ENVOY_GATEWAY: [(&str, &str); 11] = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ];

    #[test]
    fn the_environment_of_envoy_gateway_selects_its_server() {
        let options = load(&ENVOY_GATEWAY).expect("valid").rules.xds.expect("an address");
        assert_eq!(options.address.authority(), "envoy-gateway:18001");
        assert_eq!(options.identity.id, "envoy-ratelimit");
        let tls = options.tls.expect("TLS");
        assert_eq!(tls.ca_file, Some("/certs/ca.crt".into()));
        assert_eq!(tls.identity, Some(("/certs/tls.crt".into(), "/certs/tls.key".into())));
        assert!(options.start_without_rules);
    }

    #[test]
    fn without_further_variables_the_defaults_there_apply() {
        let options = load(&[]).expect("valid").rules.xds.expect("an address");
        assert_eq!(
            (options.address.authority().as_str(), options.identity.id.as_str()),
            ("localhost:18000", "default")
        );
        assert_eq!((options.tls, options.start_without_rules), (None, false));
    }

    #[test]
    fn pauses_metadata_and_headers_are_taken_over() {
        let options = load(&[
            ("CONFIG_GRPC_XDS_NODE_METADATA", "key1=val1,key2=a=b,k3=,dropped"),
            ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "X-One:1,x-two:two words"),
            ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1m30s"),
            ("XDS_CLIENT_BACKOFF_JITTER", "0"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "10_485_760"),
            // Without TLS the file is not used.
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ]);
        let options = options.expect("valid").rules.xds.expect("an address");
        let metadata: Vec<_> = options.identity.metadata.into_iter().collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(metadata, [pair("k3", ""), pair("key1", "val1"), pair("key2", "a=b")]);
        assert_eq!(options.headers.len(), 2);
        assert_eq!((options.backoff.initial.as_secs(), options.backoff.max.as_secs()), (90, 90));
        assert!(!options.backoff.jitter);
        assert_eq!((options.max_message_bytes, options.tls), (10_485_760, None));
    }

    #[test]
    fn an_address_without_a_port_is_an_error_that_names_the_variable() {
        let error = load(&[("CONFIG_GRPC_XDS_SERVER_URL", "nonsense")]).expect_err("no port").to_string();
        assert!(error.contains("environment variable CONFIG_TYPE, CONFIG_GRPC_XDS_SERVER_URL"), "{error}");
    }
}
