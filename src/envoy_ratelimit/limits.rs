//! Limits and answers.

use super::draft::Draft;

/// The cache of `envoyproxy/ratelimit` has at least this size, unless it is 0.
const SMALLEST_CACHE_BYTES: i64 = 512 * 1_024;
/// About the bytes that one denial takes in the cache of `envoyproxy/ratelimit`.
const BYTES_OF_A_DENIAL: i64 = 128;
const MOST_DENIALS: i64 = 100_000_000;

pub(super) fn translate(draft: &mut Draft) {
    for (variable, key) in [
        ("RESPONSE_DYNAMIC_METADATA", "response.dynamic_metadata"),
        ("SHADOW_MODE", "shadow_mode"),
        ("QUOTA_MODE", "quota_mode"),
    ] {
        let text = draft.values.flag(variable).to_string();
        draft.set_if_given(key, text, variable);
    }
    translate_header_names(draft);
    draft.set_default("defaults.used_up_check", "ok", "a variable for it");
    let headers =
        if draft.values.flag("LIMIT_RESPONSE_HEADERS_ENABLED") { "envoy_ratelimit" } else { "none" };
    draft.set_if_given("response.headers", headers, "LIMIT_RESPONSE_HEADERS_ENABLED");
    let stop = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT";
    let charging = if draft.values.flag(stop) { "prepaid" } else { "auto" };
    draft.set_if_given("defaults.charging", charging, stop);
    let months = "USE_CALENDAR_MONTH_RATE_LIMIT";
    let month_calendar = if draft.values.flag(months) { "UTC" } else { "" };
    draft.set_if_given("defaults.month_calendar", month_calendar, months);
    translate_near_limit(draft);
    translate_cache(draft);
    match draft.values.text("BACKEND_TYPE") {
        "redis" | "" => draft.set("store.kind", "redis", &["BACKEND_TYPE"]),
        "memcache" => {
            draft.values.refuse("BACKEND_TYPE", "redis, because there is no store for memcached");
        }
        _ => draft.values.refuse("BACKEND_TYPE", "redis"),
    }
}

fn translate_header_names(draft: &mut Draft) {
    for (variable, key) in [
        ("LIMIT_LIMIT_HEADER", "response.limit_header"),
        ("LIMIT_REMAINING_HEADER", "response.remaining_header"),
        ("LIMIT_RESET_HEADER", "response.reset_header"),
    ] {
        match draft.values.text(variable).to_owned() {
            name if name.is_empty() => {
                draft.values.warn(format!("{variable} is empty, so the header has its default name"));
            }
            name => draft.set_if_given(key, name, variable),
        }
    }
}

fn translate_near_limit(draft: &mut Draft) {
    const NAME: &str = "NEAR_LIMIT_RATIO";
    match draft.values.text(NAME).parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => {
            draft.set_if_given("near_limit_ratio", format!("{ratio:.6}"), NAME);
        }
        _ => draft.values.refuse(NAME, "a number from 0 to 1"),
    }
}

fn translate_cache(draft: &mut Draft) {
    const NAME: &str = "LOCAL_CACHE_SIZE_IN_BYTES";
    let bytes = draft.values.whole(NAME);
    if bytes < 0 {
        draft.values.refuse(NAME, "0, or a number of bytes");
        return;
    }
    draft.set_if_given("store.redis.deny_cache.enabled", (bytes > 0).to_string(), NAME);
    if bytes > 0 {
        let denials = (bytes.max(SMALLEST_CACHE_BYTES) / BYTES_OF_A_DENIAL).min(MOST_DENIALS);
        draft.set("store.redis.deny_cache.max_keys", denials.to_string(), &[NAME]);
    }
    let prefix = draft.values.text("CACHE_KEY_PREFIX").to_owned();
    if !prefix.is_empty() {
        draft.set("store.redis.key_prefix", prefix, &["CACHE_KEY_PREFIX"]);
    }
}
