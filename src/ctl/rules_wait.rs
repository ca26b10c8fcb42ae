//! `rules wait`: waits until all instances in a fleet loaded the same rules, or the same live rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use futures_util::future::join_all;
use ratelimitd::cli::output::{end, fail, print};
use ratelimitd::cli::rule_options::RuleOptions;
use ratelimitd::cli::service_connection::{CONNECTION, block_on};
use rules::load;
use serde_json::Value;
use tokio::time::Instant;

use super::admin_call::AdminCallArgs;
use super::admin_port::AdminPort;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// If a port does not answer by then, it is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const BEHIND: u8 = 1;
const FAILED: u8 = 2;

/// Wait for the rules of running services.
#[derive(Clone, Debug, Args)]
pub struct RulesArgs {
    #[command(subcommand)]
    action: RulesAction,
}

#[derive(Clone, Debug, Subcommand)]
enum RulesAction {
    Wait(WaitArgs),
}

/// Wait until every live instance uses these rules, or live rows.
///
/// Reads /fleet. With Redis, one address is enough; without, name the admin port of each instance. Ends at once if an
/// instance refuses these rules.
#[derive(Clone, Debug, Args)]
#[command(
    mut_arg("timeout", |timeout| timeout.default_value("60s")),
    group(ArgGroup::new("wanted").required(true).multiple(true).args(["rules", "digest", "exceptions"])),
    after_help = "Exit codes:
  0  every live instance has them, and at least --instances are live
  1  not within --timeout, or refused; one line for each instance that is behind
  2  no answer

Examples:
  ratelimitctl rules wait --rules config/rules --instances 3
  ratelimitctl rules wait --exceptions 1795701835000001 --admin A --admin B"
)]
struct WaitArgs {
    /// Rule file, or directory with *.yaml and *.yml files, as in rules.path of the services
    #[arg(long, value_name = "PATH", conflicts_with = "digest")]
    rules: Option<PathBuf>,
    /// The digest of rules, from `ratelimitd validate --digest`
    #[arg(long)]
    digest: Option<String>,
    /// Version of a live row, from its change
    #[arg(long, value_name = "VERSION")]
    exceptions: Option<u64>,
    /// Wait for at least this number of live instances
    #[arg(long, value_name = "N", default_value_t = 1)]
    instances: usize,
    /// Admin port of a service: an address like http://127.0.0.1:6070, https:// for TLS, or unix:/path/to/socket;
    /// repeatable
    #[arg(long, help_heading = CONNECTION, value_name = "ADDRESS", default_value = "http://127.0.0.1:6070")]
    admin: Vec<AdminPort>,
    #[command(flatten)]
    call: AdminCallArgs,
}

/// What every instance shall load.
#[derive(Clone, Debug, Default)]
struct Wanted {
    digest: Option<String>,
    exceptions: Option<u64>,
    instances: usize,
}

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    live: usize,
    /// What is missing, one line each.
    missing: Vec<String>,
    /// `true` if an instance refuses the rules.
    is_refused: bool,
    /// `true` if no port answers.
    is_silent: bool,
}

pub fn run(RulesArgs { action: RulesAction::Wait(args) }: &RulesArgs) -> ExitCode {
    let command = "ratelimitctl rules wait";
    let digest = match args.rules.as_ref().map(digest).transpose() {
        Ok(digest) => digest.or_else(|| args.digest.clone()),
        Err(problems) => return fail(command, problems, BEHIND),
    };
    let wanted = Wanted { digest, exceptions: args.exceptions, instances: args.instances };
    match block_on(wait(args, &wanted)) {
        Ok(Found { live, missing, .. }) if missing.is_empty() => {
            let plural = if live == 1 { "" } else { "s" };
            end(print(&format!("{live} instance{plural}: up to date\n")), ExitCode::SUCCESS)
        }
        Ok(found) => fail(command, found.missing.join("\n"), if found.is_silent { FAILED } else { BEHIND }),
        Err(error) => fail(command, error, FAILED),
    }
}

/// Returns the digest of rules at `path`. Rules that no service would load are an error now. Several files may define a
/// domain, as with rules.merge_domains.
fn digest(path: &PathBuf) -> Result<String, String> {
    let options = RuleOptions { merge_domains: true, ..RuleOptions::default() };
    let (_, options) = options.load().map_err(|error| error.to_string())?;
    let loaded = load(std::slice::from_ref(path), options).map_err(|problems| problems.to_string())?;
    Ok(loaded.digest)
}

/// Looks until nothing is missing, an instance refuses the rules, or the time is over. Returns the last look.
async fn wait(args: &WaitArgs, wanted: &Wanted) -> Found {
    let mut call = args.call.clone();
    call.timeout = ANSWER_WITHIN;
    let deadline = Instant::now() + args.call.timeout;
    loop {
        let page = async |port: &AdminPort| {
            let text = call.get(port, "/fleet").await.map_err(|error| error.to_string());
            let page = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
            (port.to_string(), page)
        };
        let found = Found::new(&join_all(args.admin.iter().map(page)).await, wanted);
        if found.missing.is_empty() || found.is_refused || Instant::now() + LOOK_INTERVAL > deadline {
            return found;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

impl Found {
    /// `pages`: what each port answered, or why it did not. An instance that several ports list counts once.
    fn new(pages: &[(String, Result<Value, String>)], wanted: &Wanted) -> Self {
        let mut found = Self { is_silent: pages.iter().all(|(_, page)| page.is_err()), ..Self::default() };
        let mut instances: BTreeMap<&str, &Value> = BTreeMap::new();
        for (port, page) in pages {
            match page.as_ref().map(|page| (page, page["error"].as_str())) {
                Err(error) => found.missing.push(format!("{port}: {error}")),
                // Instances that only Redis lists may be behind.
                Ok((_, Some(error))) => found.missing.push(format!("{port}: {error}")),
                Ok((page, None)) => {
                    for instance in page["instances"].as_array().into_iter().flatten() {
                        let name = instance["name"].as_str().unwrap_or_default();
                        let known = instances.entry(name).or_insert(instance);
                        if instance["at"].as_u64() > known["at"].as_u64() {
                            *known = instance;
                        }
                    }
                }
            }
        }
        for (name, instance) in instances.into_iter().filter(|(_, instance)| instance["live"] == true) {
            found.live += 1;
            found.add_instance(name, instance, wanted);
        }
        if found.live < wanted.instances {
            found.missing.push(format!("{} of {} instances are live", found.live, wanted.instances));
        }
        found
    }

    fn add_instance(&mut self, name: &str, instance: &Value, wanted: &Wanted) {
        if let Some(digest) = wanted.digest.as_deref().filter(|digest| instance["rules"] != **digest) {
            let refused = match instance["rules_refused"].as_str() {
                Some(refused) if refused == digest => " (the new ones are refused: see /rules)",
                Some(_) => " (other ones are refused: see /rules)",
                None => "",
            };
            self.is_refused |= instance["rules_refused"] == digest;
            let rules = instance["rules"].as_str().filter(|rules| !rules.is_empty()).unwrap_or("none");
            self.missing.push(format!("{name}: rules {rules}{refused}"));
        }
        let version = instance["exceptions"].as_str().and_then(|version| version.parse().ok()).unwrap_or(0);
        if wanted.exceptions.is_some_and(|wanted| version < wanted) {
            self.missing.push(format!("{name}: live rows of version {version}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instance(name: &str, rules: &str, refused: Option<&str>, exceptions: &str) -> Value {
        json!({"name": name, "live": true, "at": 7, "rules": rules, "rules_refused": refused, "exceptions": exceptions})
    }

    fn found(pages: &[Result<Value, &str>], wanted: &Wanted) -> Found {
        let page = |(place, page): (usize, &Result<Value, &str>)| {
            let page = page.clone().map(|instances| match instances {
                Value::Array(_) => json!({"source": "redis", "instances": instances}),
                page => page,
            });
            (format!("port {place}"), page.map_err(str::to_owned))
        };
        Found::new(&pages.iter().enumerate().map(page).collect::<Vec<_>>(), wanted)
    }

    #[test]
    fn every_live_instance_counts_once_and_has_what_is_wanted() {
        let wanted = |instances| Wanted { digest: Some("new".to_owned()), exceptions: Some(5), instances };
        let (a, b) = (instance("a", "new", None, "5"), instance("b", "new", Some("old"), "6"));
        let both = [Ok(json!([a, b])), Ok(json!([b]))];
        assert_eq!(found(&both, &wanted(2)), Found { live: 2, ..Found::default() });
        assert_eq!(found(&both, &wanted(3)).missing, ["2 of 3 instances are live"]);

        let mut away = instance("c", "old", None, "0");
        away["live"] = json!(false);
        assert_eq!(found(&[Ok(json!([a, away]))], &wanted(1)), Found { live: 1, ..Found::default() });

        // An instance's newer report counts, whichever port serves it.
        let mut newer = instance("a", "old", None, "9");
        newer["at"] = json!(8);
        for pages in [[Ok(json!([a])), Ok(json!([newer]))], [Ok(json!([newer])), Ok(json!([a]))]] {
            assert_eq!(found(&pages, &wanted(1)).missing, ["a: rules old"]);
        }
    }

    #[test]
    fn only_a_refusal_of_the_wanted_rules_ends_the_wait() {
        let wanted = Wanted { digest: Some("new".to_owned()), exceptions: None, instances: 1 };
        let cases = [
            // (loaded, refused, line, ends the wait)
            ("old", None, "a: rules old", false),
            ("", None, "a: rules none", false),
            ("old", Some("new"), "a: rules old (the new ones are refused: see /rules)", true),
            ("old", Some("bad"), "a: rules old (other ones are refused: see /rules)", false),
        ];
        for (loaded, refused, line, is_refused) in cases {
            let found = found(&[Ok(json!([instance("a", loaded, refused, "0")]))], &wanted);
            assert_eq!(
                (found.missing.as_slice(), found.is_refused),
                ([line.to_owned()].as_slice(), is_refused)
            );
        }
    }

    #[test]
    fn a_port_without_an_answer_and_a_redis_without_an_answer_are_missing() {
        let wanted = Wanted { digest: None, exceptions: Some(5), instances: 1 };
        let without_redis = json!({"source": "redis", "error": "no answer in time", "instances": [instance("a", "", None, "9")]});
        let pages = [Ok(without_redis), Err("cannot connect"), Ok(json!([instance("b", "", None, "4")]))];
        let found_some = found(&pages, &wanted);
        assert_eq!(
            found_some.missing,
            ["port 0: no answer in time", "port 1: cannot connect", "b: live rows of version 4"]
        );
        assert!(!found_some.is_silent);
        assert!(found(&[Err("cannot connect")], &wanted).is_silent);
    }
}
