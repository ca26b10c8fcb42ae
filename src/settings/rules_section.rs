//! `rules.*`: where the rules are, how they are loaded, and how to reach an xDS server that provides them. And
//! `exceptions.*`.

use std::path::{Path, PathBuf};

use rules::{CsvColumns, RuleDirectory};
use tls::ClientTls;

use super::error::Fault;
use super::parsers::{Parser, count, duration, flag, named, optional_path, server_name, text};
use super::reader::Reader;
use crate::xds::{BackoffOptions, NodeIdentity, ServerAddress, XdsOptions, parse_headers};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `rules.path`: a file, or a directory of files. Relative to the process's working directory.
    pub path: PathBuf,
    pub directory: RuleDirectory,
    /// `rules.merge_domains`: `true` if several files can contribute to one domain.
    pub merge_domains: bool,
    /// `rules.watch`: `true` if changed files take effect while the process runs.
    pub watch: bool,
    /// `rules.require_domain`: `true` if the process is ready only while its rules have at least one domain.
    pub require_domain: bool,
    /// `rules.xds`: the server that provides the rules; `None`: they are in files.
    pub xds: Option<XdsOptions>,
}

impl Rules {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        Self {
            path: reader.take("rules.path", "config/rules", text("the path of a file or directory")),
            directory: reader.take("rules.directory", "yaml_files", named()),
            merge_domains: reader.take("rules.merge_domains", "false", flag()),
            watch: reader.take("rules.watch", "true", flag()),
            require_domain: reader.take("rules.require_domain", "false", flag()),
            xds: xds_from_reader(reader),
        }
    }
}

/// `exceptions.*`: limits for single request values that override the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceptions {
    /// `exceptions.path`: a file, or a directory of files; `None`: no files.
    pub path: Option<PathBuf>,
    /// `true` for the default path: it may be missing, and appear later.
    pub may_be_missing: bool,
    /// `exceptions.columns.*`: what CSV files call their columns.
    pub columns: CsvColumns,
    /// `exceptions.redis`: `true` if rows that are set while the service runs are kept in Redis, with the counters.
    pub redis: bool,
}

/// In the order of [`CsvColumns`].
const CSV_COLUMNS: [&str; 7] = [
    "exceptions.columns.domain",
    "exceptions.columns.key",
    "exceptions.columns.value",
    "exceptions.columns.tier",
    "exceptions.columns.limit",
    "exceptions.columns.from",
    "exceptions.columns.until",
];

impl Exceptions {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        const DEFAULT: &str = "/etc/ratelimitd/exceptions";
        let path: Option<PathBuf> =
            reader.take("exceptions.path", DEFAULT, text("the path of a file or directory").or_nothing());
        Self {
            may_be_missing: path.as_deref() == Some(Path::new(DEFAULT)),
            path,
            columns: CsvColumns(CSV_COLUMNS.map(|key| {
                let column =
                    Parser::new("a column's name, or = and a value for all rows", |text| text.parse().ok());
                reader.take(key, "", column.or_nothing())
            })),
            redis: reader.take("exceptions.redis", "true", flag()),
        }
    }

    /// The path, unless it is missing and may be.
    pub fn existing_path(&self) -> Option<&Path> {
        self.path.as_deref().filter(|path| !self.may_be_missing || path.exists())
    }
}

const TLS: &str = "rules.xds.tls.enabled";
const MAX_BACKOFF: &str = "rules.xds.backoff.max";

/// `None` without an address.
fn xds_from_reader(reader: &mut Reader) -> Option<XdsOptions> {
    let address =
        Parser::new("a host and port like envoy-gateway:18001 or [::1]:18000", ServerAddress::parse);
    let address = reader.take("rules.xds.address", "", address.or_nothing());
    // Takes every setting, so that a malformed one is a problem even without an address.
    let metadata =
        Parser::new("key=value pairs with commas between them, or nothing", NodeIdentity::parse_metadata);
    let identity = NodeIdentity {
        id: reader.take("rules.xds.node_id", "default", text("a name").or_nothing()).unwrap_or_default(),
        metadata: reader.take("rules.xds.node_metadata", "", metadata),
    };
    let headers = "name:value pairs with commas between them, without headers of gRPC itself, or nothing";
    // A header can be a credential.
    let headers = reader.take("rules.xds.headers", "", Parser::new(headers, parse_headers).secret());
    let tls = tls(reader);
    let connect_timeout = reader.take("rules.xds.connect_timeout", "5s", duration("100ms", "1m"));
    let backoff = backoff(reader);
    let max_message_bytes = count(1_024..=1_073_741_824);
    let max_message_bytes = reader.take("rules.xds.max_message_bytes", "4194304", max_message_bytes);
    let start_without_rules = reader.take("rules.xds.start_without_rules", "false", flag());
    let address = address?;
    if reader.is_written("rules.path") {
        let reason = "the rules come from rules.xds.address; set only one of the two";
        reader.refuse("rules.path", Fault::Unsupported(reason));
    }
    Some(XdsOptions {
        address,
        identity,
        headers,
        tls,
        connect_timeout,
        backoff,
        max_message_bytes,
        start_without_rules,
    })
}

fn tls(reader: &mut Reader) -> Option<ClientTls> {
    let enabled = reader.take(TLS, "false", flag());
    let ca_file = reader.take("rules.xds.tls.ca_file", "", optional_path());
    let identity = reader.take_identity("rules.xds.tls");
    let server_name = reader.take("rules.xds.tls.server_name", "", server_name());
    let tls = ClientTls { ca_file, identity, server_name, ..ClientTls::default() };
    if !enabled && tls != ClientTls::default() {
        // The operator set them, so clear text is not intended.
        let reason = "files or a name for TLS are set: set it to true, or leave them out";
        reader.refuse(TLS, Fault::Unsupported(reason));
    }
    enabled.then_some(tls)
}

fn backoff(reader: &mut Reader) -> BackoffOptions {
    let backoff = BackoffOptions {
        initial: reader.take("rules.xds.backoff.initial", "1s", duration("10ms", "1h")),
        max: reader.take(MAX_BACKOFF, "30s", duration("10ms", "1h")),
        jitter: reader.take("rules.xds.backoff.jitter", "true", flag()),
    };
    if backoff.max < backoff.initial {
        reader.refuse(MAX_BACKOFF, Fault::Unsupported("shorter than rules.xds.backoff.initial"));
    }
    backoff
}

#[cfg(test)]
mod tests {
    use crate::settings::tests::load_layers;
    use crate::settings::{Settings, SettingsError};

    fn with(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let owned = |&(name, value): &(&str, &str)| (format!("RATELIMITD__RULES__{name}"), value.to_owned());
        load_layers(None, variables.iter().map(owned))
    }

    fn problems(variables: &[(&str, &str)]) -> Vec<String> {
        match with(variables) {
            Err(SettingsError::Invalid(problems)) => {
                problems.0.iter().map(|problem| format!("{}: {}", problem.key, problem.fault)).collect()
            }
            other => panic!("expected problems, got {other:?}"),
        }
    }

    #[test]
    fn an_address_selects_the_server() {
        assert_eq!(with(&[]).expect("the defaults").rules.xds, None);
        let settings = with(&[
            ("XDS__ADDRESS", "envoy-gateway:18001"),
            ("XDS__NODE_ID", "envoy-ratelimit"),
            ("XDS__TLS__ENABLED", "true"),
            ("XDS__TLS__CA_FILE", "/certs/ca.crt"),
        ]);
        let options = settings.expect("valid").rules.xds.expect("an address");
        assert_eq!(options.address.authority(), "envoy-gateway:18001");
        assert_eq!(options.identity.id, "envoy-ratelimit");
        assert_eq!(options.tls.and_then(|tls| tls.ca_file), Some("/certs/ca.crt".into()));
    }

    #[test]
    fn two_sources_of_rules_are_refused() {
        let told = problems(&[("XDS__ADDRESS", "localhost:18000"), ("PATH", "config/rules")]);
        let expected = "rules.path: the rules come from rules.xds.address; set only one of the two";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let told = problems(&[("XDS__TLS__ENABLED", "true"), ("XDS__TLS__KEY_FILE", "/certs/tls.key")]);
        let expected = "rules.xds.tls.cert_file: cert_file and key_file belong together: set both or none";
        assert_eq!(told, [expected]);
        let told = problems(&[("XDS__TLS__CA_FILE", "/certs/ca.crt")]);
        let expected =
            "rules.xds.tls.enabled: files or a name for TLS are set: set it to true, or leave them out";
        assert_eq!(told, [expected]);
        let told = problems(&[("XDS__BACKOFF__INITIAL", "10s"), ("XDS__BACKOFF__MAX", "5s")]);
        assert_eq!(told, ["rules.xds.backoff.max: shorter than rules.xds.backoff.initial"]);
    }

    #[test]
    fn a_bad_value_is_told_and_the_value_of_a_header_is_not() {
        let told = problems(&[("XDS__ADDRESS", "envoy-gateway"), ("XDS__HEADERS", "authorization")]);
        let expected = [
            "rules.xds.address: expected a host and port like envoy-gateway:18001 or [::1]:18000, or nothing, \
             found \"envoy-gateway\"",
            "rules.xds.headers: expected name:value pairs with commas between them, without headers of gRPC \
             itself, or nothing",
        ];
        assert_eq!(told, expected);
    }
}
