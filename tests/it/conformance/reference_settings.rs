//! How a case is started: with the variables of the reference as they are, and with what the test has to choose.

use super::Counters;
use super::case::Case;
use crate::support::process::Plan;

/// The case whose rules cannot be loaded, so that the service never becomes ready.
const NEVER_READY: &str = "no-configuration";

/// The variables of the case, its rules, and the store. `attempt`: how often the case was played before.
pub fn plan(case: &Case, counters: Counters<'_>, attempt: usize) -> Plan {
    let plan = Plan::default()
        .set("envoy_ratelimit_environment", "on")
        .set("server.drain", "0s")
        // The reference then reads every file of the directory.
        .variable("RUNTIME_WATCH_ROOT", "false");
    let plan = match counters {
        // In the environment, because the default in the settings file does not count as chosen.
        Counters::Memory => plan.env("STORE__KIND", "memory"),
        Counters::MemoryByTonic => plan.env("STORE__KIND", "memory").set("server.grpc.fast", false),
        Counters::Redis(url) => plan.redis(url),
    };
    let sets_prefix = case.settings.iter().any(|(name, _)| name == "CACHE_KEY_PREFIX");
    let prefix = format!("{}:{attempt}:", case.name);
    let plan = if sets_prefix { plan } else { plan.set("store.redis.key_prefix", prefix) };
    let plan = if case.name == NEVER_READY { plan.wait_for_livez() } else { plan };
    let plan = case.settings.iter().fold(plan, |plan, (name, value)| plan.variable(name, value));
    case.rules.iter().fold(plan, |plan, (name, text)| plan.rule_file(name, text))
}
