//! The formats of access logs, their fields, and how the first lines of a log reveal its format.

use strum::{EnumString, IntoStaticStr, VariantNames};

use super::haproxy::{HAPROXY_FIELDS, split_haproxy};
use super::text_layout::{ENVOY, ISTIO, NGINX};

/// The values of `--format`, in the order of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Format {
    /// Recorded requests, as for `replay`. Needs no map.
    Jsonl,
    Envoy,
    Istio,
    /// One JSON object per line with the keys of Envoy Gateway's default.
    EnvoyJson,
    /// `combined`, optionally followed by `$msec` and `$request_time`.
    Nginx,
    /// `option httplog`, with or without a syslog header.
    Haproxy,
    /// Comma-separated values; the first line names the fields.
    Csv,
    /// One JSON object per line.
    Json,
}

/// Gives fields of Envoy's JSON the names of the text formats, so that one map fits both.
const ENVOY_JSON_ALIASES: [(&str, &str); 4] = [
    ("path", "x-envoy-origin-path"),
    ("code", "response_code"),
    ("flags", "response_flags"),
    ("authority", ":authority"),
];

impl Format {
    /// The names of all fields; `None` if only the log's own lines define them.
    pub(super) fn fields(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Envoy => Some(ENVOY.fields()),
            Self::Istio => Some(ISTIO.fields()),
            Self::Nginx => Some(NGINX.fields()),
            Self::Haproxy => Some(HAPROXY_FIELDS.to_vec()),
            Self::Jsonl | Self::EnvoyJson | Self::Csv | Self::Json => None,
        }
    }

    /// The name of a field in the lines themselves.
    pub(super) fn own_name(self, field: &str) -> &str {
        let is_alias = |(alias, _): &&(&str, &str)| self == Self::EnvoyJson && *alias == field;
        ENVOY_JSON_ALIASES.iter().find(is_alias).map_or(field, |(_, own)| own)
    }

    /// The field with the time at which the request began, if the format has one.
    pub(crate) fn time_field(self) -> Option<&'static str> {
        match self {
            Self::Envoy | Self::Istio | Self::EnvoyJson => Some("start_time"),
            Self::Nginx => Some("time_local"),
            Self::Haproxy => Some("accept_date"),
            Self::Jsonl | Self::Csv | Self::Json => None,
        }
    }
}

/// The format of most of these lines; `None` if no format matches half of them.
pub(crate) fn recognize<'l>(lines: impl Iterator<Item = &'l str> + Clone) -> Option<Format> {
    let total = lines.clone().count();
    // Earlier formats win ties, because they are narrower.
    let order = [
        Format::Jsonl,
        Format::EnvoyJson,
        Format::Json,
        Format::Istio,
        Format::Envoy,
        Format::Nginx,
        Format::Haproxy,
    ];
    let counted = order.map(|format| (lines.clone().filter(|line| has_format(format, line)).count(), format));
    let best = counted.into_iter().rev().max_by_key(|(count, _)| *count);
    let text = best.filter(|(count, _)| *count > 0 && count * 2 >= total).map(|(_, format)| format);
    text.or_else(|| lines.clone().next().filter(|header| is_csv_header(header)).map(|_| Format::Csv))
}

fn has_format(format: Format, line: &str) -> bool {
    match format {
        Format::Jsonl => {
            line.starts_with('{') && line.contains("\"t_us\"") && line.contains("\"descriptors\"")
        }
        Format::EnvoyJson => {
            line.starts_with('{') && line.contains("\"start_time\"") && line.contains("\"response_code\"")
        }
        Format::Json => line.starts_with('{') && line.ends_with('}'),
        Format::Istio => ISTIO.split(line).is_ok(),
        Format::Envoy => ENVOY.split(line).is_ok(),
        Format::Nginx => NGINX.split(line).is_ok(),
        Format::Haproxy => split_haproxy(line).is_ok(),
        Format::Csv => false,
    }
}

/// `true` for at least two field names without spaces around them.
fn is_csv_header(line: &str) -> bool {
    let is_name = |name: &str| {
        let name = name.trim_matches('"');
        let mut characters = name.chars();
        let starts =
            characters.next().is_some_and(|first| first.is_alphabetic() || first == '_' || first == ':');
        starts && characters.all(|other| other.is_alphanumeric() || "_-.:/() ".contains(other))
    };
    line.contains(',') && line.split(',').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_recognized_from_one_line() {
        let envoy = r#"[2026-04-15T20:17:00.310Z] "POST /a HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "ua" "id" "host" "10.0.2.1:80""#;
        let istio = r#"[2026-04-15T20:17:00.310Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 135 0 0 "-" "curl" "id" "httpbin:8000" "127.0.0.1:80" inbound|80|| 127.0.0.1:5 10.0.0.1:80 10.0.0.2:6 outbound_.8000 default"#;
        let nginx = r#"192.0.2.1 - - [15/Apr/2026:20:17:00 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8""#;
        let haproxy = "10.0.1.2:33317 [06/Feb/2026:12:14:14.655] in static/srv1 10/0/30/69/109 200 2750 - - ---- \
                       1/1/1/1/0 0/0 \"GET / HTTP/1.1\"";
        let table = [
            (r#"{"t_us":1,"domain":"d","descriptors":[]}"#, Format::Jsonl),
            (envoy, Format::Envoy),
            (istio, Format::Istio),
            (r#"{"start_time":"x","response_code":200}"#, Format::EnvoyJson),
            (nginx, Format::Nginx),
            (&format!("{nginx} 1776284220.310"), Format::Nginx),
            (&format!("{nginx} 1776284220.310 0.004"), Format::Nginx),
            (haproxy, Format::Haproxy),
            (r#"{"ts":1}"#, Format::Json),
            ("time,client ip,path", Format::Csv),
        ];
        for (line, format) in table {
            assert_eq!(recognize([line].into_iter()), Some(format), "{line}");
        }
        assert_eq!(recognize(["hello", "world"].into_iter()), None);
        assert_eq!(recognize(["garbage", nginx, nginx].into_iter()), Some(Format::Nginx));
    }
}
