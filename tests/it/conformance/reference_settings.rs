//! The variables of the reference that the cases set, as settings of this service.

use super::case::Case;
use crate::support::process::Plan;

/// Adds the settings of the case to `plan`.
pub fn apply(case: &Case, plan: Plan) -> Plan {
    // What the reference does whatever its variables are.
    let plan = plan.set("defaults.used_up_check", "ok");
    case.settings.iter().fold(plan, |plan, (name, value)| apply_one(plan, name, value))
}

fn apply_one(plan: Plan, name: &str, value: &str) -> Plan {
    match (name, value) {
        ("CACHE_KEY_PREFIX", prefix) => plan.set("store.redis.key_prefix", prefix),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true") => plan.set("response.headers", "envoy_ratelimit"),
        ("LIMIT_LIMIT_HEADER", header) => plan.set("response.limit_header", header),
        ("LIMIT_REMAINING_HEADER", header) => plan.set("response.remaining_header", header),
        ("LIMIT_RESET_HEADER", header) => plan.set("response.reset_header", header),
        // The cache of denials needs no size.
        ("LOCAL_CACHE_SIZE_IN_BYTES", _) => plan,
        ("MERGE_DOMAIN_CONFIG", "true") => plan.set("rules.merge_domains", true),
        ("QUOTA_MODE", "true") => plan.set("quota_mode", true),
        ("RESPONSE_DYNAMIC_METADATA", "true") => plan.set("response.dynamic_metadata", true),
        ("SHADOW_MODE", "true") => plan.set("shadow_mode", true),
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true") => plan.set("defaults.charging", "prepaid"),
        _ => panic!("{name}={value} has no row in this table"),
    }
}
