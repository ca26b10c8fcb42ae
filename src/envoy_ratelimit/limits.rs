//! Translates limits and answers.

use super::draft::Draft;

/// Minimum cache size in `envoyproxy/ratelimit`, unless it is 0.
const SMALLEST_CACHE_BYTES: i64 = 512 * 1_024;
/// Approximate bytes per denial in the cache of `envoyproxy/ratelimit`.
const BYTES_OF_A_DENIAL: i64 = 128;
const MOST_DENIALS: i64 = 100_000_000;

pub(super) fn translate(draft: &mut Draft) {
    draft.copy_flag("response.dynamic_metadata", "RESPONSE_DYNAMIC_METADATA");
    draft.copy_flag("shadow_mode", "SHADOW_MODE");
    draft.copy_flag("quota_mode", "QUOTA_MODE");
    translate_header_names(draft);
    draft.set_default("defaults.used_up_check", "ok", "a variable for it");
    let headers = if draft.flag("LIMIT_RESPONSE_HEADERS_ENABLED") { "envoy_ratelimit" } else { "none" };
    draft.set_if_given("response.headers", headers, "LIMIT_RESPONSE_HEADERS_ENABLED");
    let stop = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT";
    let charging = if draft.flag(stop) { "prepaid" } else { "auto" };
    draft.set_if_given("defaults.charging", charging, stop);
    let months = "USE_CALENDAR_MONTH_RATE_LIMIT";
    let month_calendar = if draft.flag(months) { "UTC" } else { "" };
    draft.set_if_given("defaults.month_calendar", month_calendar, months);
    translate_near_limit(draft);
    translate_cache(draft);
    match draft.text("BACKEND_TYPE") {
        "redis" | "" => draft.set("store.kind", "redis", &["BACKEND_TYPE"]),
        "memcache" => draft.refuse("BACKEND_TYPE", "redis, because there is no store for memcached"),
        _ => draft.refuse("BACKEND_TYPE", "redis"),
    }
}

fn translate_header_names(draft: &mut Draft) {
    for (variable, key) in [
        ("LIMIT_LIMIT_HEADER", "response.limit_header"),
        ("LIMIT_REMAINING_HEADER", "response.remaining_header"),
        ("LIMIT_RESET_HEADER", "response.reset_header"),
    ] {
        if draft.text(variable).is_empty() {
            draft.warn(format!("{variable} is empty; using the default header name"));
        } else {
            draft.copy_text(key, variable);
        }
    }
}

fn translate_near_limit(draft: &mut Draft) {
    const NAME: &str = "NEAR_LIMIT_RATIO";
    match draft.text(NAME).parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => {
            draft.set_if_given("near_limit_ratio", format!("{ratio:.6}"), NAME);
        }
        _ => draft.refuse(NAME, "a number from 0 to 1"),
    }
}

fn translate_cache(draft: &mut Draft) {
    const NAME: &str = "LOCAL_CACHE_SIZE_IN_BYTES";
    let bytes = draft.whole(NAME);
    if bytes < 0 {
        draft.refuse(NAME, "0, or a number of bytes");
        return;
    }
    draft.set_if_given("store.redis.deny_cache.enabled", (bytes > 0).to_string(), NAME);
    if bytes > 0 {
        let denials = (bytes.max(SMALLEST_CACHE_BYTES) / BYTES_OF_A_DENIAL).min(MOST_DENIALS);
        draft.set("store.redis.deny_cache.max_keys", denials.to_string(), &[NAME]);
    }
    draft.copy_if_not_empty("store.redis.key_prefix", "CACHE_KEY_PREFIX");
}
