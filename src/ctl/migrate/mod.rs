//! `migrate`: translates the environment and rules of `envoyproxy/ratelimit` to ratelimitd settings, with the
//! differences; `counters` copies its counters.

mod counters;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use base::{decimal_seconds, readable_duration};
use clap::Args;
use ratelimitd::app::{ReadRules, load_options};
use ratelimitd::cli::load_settings::{LoadedSettings, load_settings};
use ratelimitd::cli::output::{end, fail, print};
use ratelimitd::cli::rule_options::settings_rules;
use ratelimitd::envoy_ratelimit::{RatelimitVariable, ratelimit_variables};
use ratelimitd::settings::{SettingInForce, Settings, Store, StoreKind};
use rules::Problems;
use store::redis::RedisUrl;

use super::counters::import::SetTarget;

/// How long Envoy waits for an answer if its filter has no `timeout`.
const ENVOY_TIMEOUT: Duration = Duration::from_millis(20);

/// The table with each variable's difference.
const DIFFERENCES: &str = "docs/migrating.md#work-with-a-difference";

/// Translate the environment of envoyproxy/ratelimit into a settings file.
///
/// Reads its variables and those of ratelimitd from the environment, and the rules that they name: files, or an xDS
/// server. Prints an equivalent settings file, and names the variables that differ. Leaves out passwords. With
/// --counters, copies the counters of the running windows from its Redis to a running ratelimitd with the same rules
/// instead.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  valid environment and rules; all counters copied
  1  invalid environment or rules, or some counters not copied; the reasons are on standard error
  2  cannot write the output; no answer from Redis or the admin port

Examples:
  docker run --rm --entrypoint ratelimitctl --env-file ratelimit.env -v ./rules:/data/ratelimit/config ratelimitd:VERSION migrate > ratelimitd.yaml
  RUNTIME_ROOT=/data REDIS_URL=redis:6379 ratelimitctl migrate
  RUNTIME_ROOT=/data REDIS_URL=redis:6379 ratelimitctl migrate --counters --reason go-live --token-file admin.token")]
pub struct MigrateArgs {
    /// Skip the rules
    #[arg(long)]
    settings_only: bool,

    /// Copy the counters whose windows are running
    #[arg(long, conflicts_with = "settings_only")]
    counters: bool,

    /// Read the counters from this Redis server instead of that of the environment; of a cluster, name each primary
    /// once
    #[arg(long, value_name = "URL", requires = "counters")]
    from: Option<RedisUrl>,

    #[command(flatten)]
    target: SetTarget,
}

pub fn run(args: &MigrateArgs) -> ExitCode {
    let loaded = match load_settings(None, Some("ratelimit")) {
        Ok(loaded) => loaded,
        Err(error) => return fail("ratelimitctl migrate", error, 1),
    };
    if args.counters {
        return counters::run(&loaded, args.from.as_ref(), &args.target);
    }
    let mut text = settings_text(&loaded);
    let is_good = args.settings_only || {
        let (lines, is_good) = rules_text(&loaded.settings);
        text.push_str(&lines);
        is_good
    };
    end(print(&text), if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn settings_text(found: &LoadedSettings) -> String {
    let mut text = "# Settings equivalent to the environment of envoyproxy/ratelimit.\n".to_owned();
    let is_translated = |setting: &&SettingInForce| {
        // Also ratelimitd's own variables: they are used at startup, and override the ones of envoyproxy/ratelimit.
        setting.origin.is_some() && !setting.is_default
    };
    let catalogue = Settings::catalogue();
    let mut sections: Vec<&str> = Vec::new();
    let mut settings: Vec<_> = found.report.settings.iter().filter(is_translated).collect();
    // By section: YAML allows each key once.
    settings.sort_unstable_by_key(|setting| &setting.key);
    for setting in settings {
        let path: Vec<&str> = setting.key.split('.').collect();
        let (name, outer) = path.split_last().expect("a key has a name");
        let shared = sections.iter().zip(outer).take_while(|(open, section)| open == section).count();
        for (depth, section) in outer.iter().enumerate().skip(shared) {
            let _ = writeln!(text, "{}{section}:", "  ".repeat(depth));
        }
        sections = outer.to_vec();
        let expected = catalogue.iter().find(|known| known.key == setting.key).map(|known| &*known.expected);
        for line in setting_lines(name, setting, expected.unwrap_or_default()).lines() {
            let _ = writeln!(text, "{}{line}", "  ".repeat(outer.len()));
        }
    }
    text.push_str(&differences(found));
    text.push_str(&timeout_for_envoy(&found.settings.store));
    text
}

/// Formats a setting with a value of its type, because the Helm chart's values are checked by type: numbers, flags and
/// lists unquoted, everything else in single quotes, which keep every character in YAML. A secret is a comment.
fn setting_lines(name: &str, setting: &SettingInForce, expected: &str) -> String {
    let (source, value) = (setting.source(), &setting.value);
    if setting.is_masked {
        let variable = format!("RATELIMITD__{}", setting.key.to_uppercase().replace('.', "__"));
        return format!("# {name}: a secret ({source}); set {variable}");
    }
    if expected.starts_with("a list ") {
        return format!("{name}:  # {source}\n  {}", value.trim_end().replace('\n', "\n  "));
    }
    let is_plain =
        ["a whole number ", "a number ", "true or false"].iter().any(|of| expected.starts_with(of));
    let value = match value.parse::<u64>() {
        // YAML reads 010 as 8.
        Ok(number) if is_plain => number.to_string(),
        _ if is_plain => value.clone(),
        _ => format!("'{}'", value.replace('\'', "''")),
    };
    format!("{name}: {value}  # {source}")
}

/// Names the variables that are set and behave differently in ratelimitd, and quotes the warnings.
fn differences(found: &LoadedSettings) -> String {
    let mut text = String::new();
    let is_told =
        |variable: &&RatelimitVariable| variable.differs && found.variables.contains(&variable.name);
    let names: Vec<_> = ratelimit_variables().iter().filter(is_told).map(|variable| variable.name).collect();
    if !names.is_empty() {
        let _ = writeln!(text, "# {}: see {DIFFERENCES}", names.join(", "));
    }
    for warning in &found.report.warnings {
        let _ = writeln!(text, "# {warning}");
    }
    if text.is_empty() { text } else { format!("\n# What is different:\n{text}") }
}

/// Returns the timeout that Envoy needs, unless the store's is below the time that Envoy waits by default.
fn timeout_for_envoy(store: &Store) -> String {
    let timeout = store.redis.timeout;
    if store.kind != StoreKind::Redis || timeout < ENVOY_TIMEOUT {
        return String::new();
    }
    let ours = readable_duration(timeout);
    format!(
        "\n# What to set in Envoy:\n# store.redis.timeout is {ours}, but Envoy waits {} for an answer unless its filter \
         envoy.filters.http.ratelimit has another timeout: it then gives up before on_store_failure answers, and \
         failure_mode_deny decides. Set timeout of the filter above {ours}, such as {}s, or store.redis.timeout below the \
         timeout of the filter\n",
        readable_duration(ENVOY_TIMEOUT),
        decimal_seconds(timeout * 3 / 2),
    )
}

/// Returns what the rules will do, and `true` if the service would be ready with them. A server that does not answer is
/// not a problem of the rules: this command may run where the server is unreachable.
fn rules_text(settings: &Settings) -> (String, bool) {
    let options = match settings.secrets.value_hashing() {
        Ok(hashing) => load_options(settings, hashing),
        Err(error) => return (format!("# {error}\n"), false),
    };
    let place = match &settings.rules.xds {
        Some(xds) => format!("of the xDS server {}", xds.address.authority()),
        None => format!("at {}", settings.rules.path.display()),
    };
    let mut text = format!("\n# The rules {place}:\n");
    let read = settings_rules(settings, options);
    let (problems, is_good) = match &read {
        Ok(ReadRules { loaded, .. }) => {
            let (files, domains) = (loaded.files, loaded.specs.len());
            let rules = loaded.rules.rules().len();
            let files_name = if settings.rules.xds.is_some() { "resources" } else { "files" };
            let _ = writeln!(text, "# valid: {files_name} {files}, domains {domains}, rules {rules}");
            (Some(&loaded.warnings), true)
        }
        Err(error) if error.problems().is_some() => {
            text.push_str("# invalid: the service would start, not ready\n");
            (error.problems(), false)
        }
        Err(error) => {
            let _ = writeln!(text, "# not read: {error}");
            (None, true)
        }
    };
    for problem in problems.into_iter().flat_map(Problems::all) {
        let _ = writeln!(text, "# {problem}");
    }
    (text, is_good)
}
