//! What a notice says: the JSON of the webhook, and its id.

use engine::{OnOver, Share};
use rules::{local_time, utc_text};
use serde_json::{Value, json};
use store::marks::MarkId;

use super::reached::Reached;
use crate::ledger::entries_of;

/// The body of the webhook.
pub(super) fn message(reached: &Reached) -> Value {
    let Reached { domain, rule, key, share, level, spec, .. } = reached;
    let count = if spec.period.multiplier() == 1 { "1 " } else { "" };
    let mut data = json!({
        "domain": &**domain,
        "rule": &**rule,
        "entries": entries_of(key),
        "share": number_of(*share),
        "used": level.used,
        "limit": level.of,
        "unit_name": spec.unit_name.as_deref().unwrap_or("requests"),
        "mode": if spec.on_over == OnOver::Announce { "soft" } else { "enforced" },
        "period": format!("{count}{}", spec.period),
    });
    if let Some((_, end_us)) = level.window_us {
        let zone = spec.calendar.as_ref().map(|calendar| calendar.zone());
        data["period_ends"] = time_text(end_us, zone).into();
    }
    json!({ "type": "limit.reached", "timestamp": utc_text(level.now_us), "data": data })
}

/// A share as a JSON number: a double shows its six decimals as they are written.
pub(super) fn number_of(share: Share) -> f64 {
    f64::from(share.millionths()) / 1_000_000.0
}

/// RFC 3339, in the zone if there is one.
fn time_text(us: u64, zone: Option<&str>) -> String {
    let local = zone.and_then(|zone| local_time(zone, us));
    local.map_or_else(|| utc_text(us), |local| local.replacen(' ', "T", 1).replace(' ', ""))
}

/// The id of the mark: the same in each process for one share of one limit, key and window. `begin_us`: of the window;
/// `None` for all periods of an algorithm without windows.
pub(super) fn id_of(reached: &Reached, begin_us: Option<u64>) -> MarkId {
    let numbers =
        [reached.share.millionths().into(), reached.level.of, begin_us.unwrap_or(0)].map(u64::to_le_bytes);
    let texts = [&*reached.domain, &*reached.rule, &*reached.key].map(str::as_bytes);
    let parts = texts.into_iter().chain(numbers.iter().map(|number| &number[..]));
    let mut id = MarkId::default();
    id.copy_from_slice(&base::sha256(parts)[..size_of::<MarkId>()]);
    id
}
