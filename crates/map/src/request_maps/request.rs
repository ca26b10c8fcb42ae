//! A map for live requests, as a proxy describes them: their descriptors are decided, not simulated.

use std::borrow::Cow;

use engine::Request;

use super::mapped::MappedLine;
use super::{CostRule, Map};
use crate::entry::{EntrySource, Step};
use crate::expression::FieldIndex;
use crate::request_field::RequestField;
use crate::values::{Selected, ValueFault};
use crate::yaml_map::MapError;

/// A map that uses only fields of requests. What it says about the answer (`good`, `was_limited`) and the time is
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMap {
    map: Map,
    /// By field index of the map; `None` for an ignored field.
    fields: Vec<Option<RequestField>>,
}

impl Map {
    /// Converts the map for live requests.
    ///
    /// # Errors
    /// [`MapError`] for the first field that a request does not have.
    pub fn for_requests(self) -> Result<RequestMap, MapError> {
        let mut fields: Vec<Option<RequestField>> = vec![None; self.fields.names().count()];
        for FieldIndex(index) in self.decisive_fields() {
            let (name, line) = self.fields.get(index).unwrap_or_default();
            let field = RequestField::from_name(name).ok_or_else(|| MapError {
                file: self.file.clone(),
                line,
                reason: format!(
                    "a request has no field '{name}' before it is answered; use a header, or another name of the \
                     method, the path, the host or the client's address"
                ),
            })?;
            fields[index] = Some(field);
        }
        Ok(RequestMap { map: self, fields })
    }

    /// The fields that decide what a request is charged.
    fn decisive_fields(&self) -> Vec<FieldIndex> {
        let mut found = Vec::new();
        for rule in &self.descriptors {
            rule.when.iter().for_each(|when| when.add_fields(&mut found));
            for entry in &rule.entries {
                if let EntrySource::Field { field, .. } = &entry.source {
                    found.push(*field);
                }
            }
        }
        if let CostRule::Field { field, .. } = self.cost {
            found.push(field);
        }
        self.keep.iter().for_each(|keep| keep.add_fields(&mut found));
        found
    }
}

impl RequestMap {
    pub fn domain(&self) -> &str {
        &self.map.domain
    }

    /// Warns of entries whose value a request may lack: without a default, their descriptor and its limits are then
    /// left out. Each warning has the file, the line and a remedy. A condition on the field shows that this is
    /// intended.
    pub fn warnings(&self) -> Vec<String> {
        let map = &self.map;
        let mut warnings = Vec::new();
        for rule in &map.descriptors {
            for entry in &rule.entries {
                let EntrySource::Field { field, steps, default: None } = &entry.source else { continue };
                let may_have_none = steps.iter().any(Step::may_have_none);
                let is_meant = map.keep.iter().chain(&rule.when).any(|condition| condition.needs(*field));
                // A request always has a method.
                let is_certain = self.fields[field.0] == Some(RequestField::Method) || is_meant;
                let Some(needed) = map.needed_value(entry).filter(|_| may_have_none || !is_certain) else {
                    continue;
                };
                let (name, line) = map.fields.get(field.0).unwrap_or_default();
                let keys: Vec<&str> = rule.entries.iter().map(|entry| &*entry.key).collect();
                let or = if may_have_none { String::new() } else { format!(", or 'when: {name} exists'") };
                warnings.push(format!(
                    "{}:{line}: a request without {needed} meets no limit of {}: add 'default: unknown'{or}",
                    map.file,
                    keys.join(",")
                ));
            }
        }
        warnings
    }

    /// Builds the map's request, without a caller. It has no descriptor, and so no limit, if `keep` does not hold or if
    /// each descriptor has an entry without a value. `value` returns the request's value of a field.
    ///
    /// # Errors
    /// The error of `value`, or the [`ValueFault`] of the cost or of the path.
    pub fn request<'v, E: From<ValueFault>>(
        &self,
        value: impl Fn(&RequestField) -> Result<Option<Cow<'v, str>>, E>,
    ) -> Result<Request, E> {
        let values = self.fields.iter().map(|field| field.as_ref().map_or(Ok(None), &value));
        let values: Selected<'v> = values.collect::<Result<_, E>>()?;
        let spelled = self.map.spelled(values)?;
        let mut mapped = MappedLine::default();
        if self.map.keep.as_ref().is_none_or(|keep| spelled.meets(keep)) {
            let hits = self.map.cost.units(&spelled.values)?;
            self.map.write_descriptors(&spelled, hits, &mut mapped);
        }
        mapped.request.domain.clone_from(&self.map.domain);
        Ok(mapped.request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::one_spelling;

    const ENTRY: &str = "domain: d\ndescriptors:\n  - - { key: k, from: ";

    fn for_requests(text: &str) -> Result<RequestMap, MapError> {
        Map::parse("m", text).expect("a valid map").for_requests()
    }

    /// The entries of each descriptor, and the units of the first.
    fn request(map: &RequestMap, values: &[(&str, &str)]) -> Result<(Vec<String>, Option<u64>), ValueFault> {
        let request = map.request(|field| {
            let named = values.iter().find(|(name, _)| RequestField::from_name(name).as_ref() == Some(field));
            Ok::<_, ValueFault>(named.map(|(_, value)| Cow::Borrowed(*value)))
        })?;
        assert_eq!(request.domain, "d");
        let entries = request.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
            entries.collect::<Vec<_>>().join(",")
        });
        Ok((entries.collect(), request.descriptors.first().and_then(|descriptor| descriptor.hits)))
    }

    #[test]
    fn a_field_of_the_answer_is_refused_with_its_line() {
        let table = [
            (format!("{ENTRY}code }}"), "m:3: a request has no field 'code' before it is answered"),
            (format!("{ENTRY}path }}\ncost: {{ from: bytes_sent }}"), "m:4: a request has no field 'bytes_sent'"),
            (format!("{ENTRY}path }}\nkeep: not flags has RL"), "m:4: a request has no field 'flags'"),
            (
                "domain: d\ndescriptors:\n  - { entries: [{ key: k, value: v }], when: path == /a or status < 400 }"
                    .to_owned(),
                "m:3: a request has no field 'status'",
            ),
        ];
        for (text, expected) in table {
            let error = for_requests(&text).expect_err(&text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_entry_that_may_have_no_value_is_a_warning() {
        let warning = |reason: &str| vec![format!("m:{reason}")];
        let table = [
            (
                "remote_addr }",
                warning(
                    "3: a request without a value in remote_addr meets no limit of k: add 'default: unknown', or 'when: remote_addr exists'",
                ),
            ),
            (
                "remote_addr, prefix: 64 }",
                warning(
                    "3: a request without an address in remote_addr meets no limit of k: add 'default: unknown'",
                ),
            ),
            (
                "http_x_forwarded_for, take: trusted-hop 2 }\n    - { key: method, from: method }\nkeep: http_x_forwarded_for exists",
                warning(
                    "3: a request without a trusted-hop 2 in http_x_forwarded_for meets no limit of k,method: add 'default: unknown'",
                ),
            ),
            (
                "x-key }\nkeep: x-key exists or path != /a",
                warning(
                    "3: a request without a value in x-key meets no limit of k: add 'default: unknown', or 'when: x-key exists'",
                ),
            ),
            ("method }", vec![]),
            ("remote_addr, prefix: 64, default: unknown }", vec![]),
            ("x-key }\nkeep: path != /a and x-key exists", vec![]),
            ("x-key }\nkeep: x-key == a or x-key > 3", vec![]),
        ];
        for (text, expected) in table {
            assert_eq!(
                for_requests(&format!("{ENTRY}{text}")).expect("a valid map").warnings(),
                expected,
                "{text}"
            );
        }
        let when = "domain: d\ndescriptors:\n  - { entries: [{ key: k, from: x-key }], when: x-key exists }";
        assert_eq!(for_requests(when).expect("a valid map").warnings(), Vec::<String>::new());
    }

    #[test]
    fn another_spelling_of_a_path_never_has_fewer_limits() {
        let text = "path }\n  - { entries: [{ key: login, value: x }], when: path == /login }\n\
                    keep: not path starts_with /health\nnormalize: path\n";
        let map = for_requests(&format!("{ENTRY}{text}")).expect("a valid map");
        let table: [(&str, &[&str]); 12] = [
            ("/health", &[]),
            ("/health?x", &[]),
            ("/healthy/x", &[]),
            // A service may not read these as /health, so they have limits.
            ("/%68ealth", &["k=/health"]),
            ("//health", &["k=/health"]),
            ("/a;/health", &["k=/a/health"]),
            // A service may read these as /login, so they have its limit.
            ("/login", &["k=/login", "login=x"]),
            ("/%2Flogin", &["k=/login", "login=x"]),
            ("/\\login%5c", &["k=/login/"]),
            ("/login;a=b?c", &["k=/login", "login=x"]),
            ("//%6Cogin", &["k=/login", "login=x"]),
            ("http://shop/%256Cogin?a", &["k=/login", "login=x"]),
        ];
        for (path, expected) in table {
            let found = request(&map, &[("path", path)]).expect("a request").0;
            assert_eq!(found, expected, "{path}");
        }
        for path in
            ["/files/x/../../health", "/health/%2e%2e/files", "/health/..%2ffiles", "/health/..;/files"]
        {
            assert_eq!(request(&map, &[("path", path)]), Err(ValueFault::DotSegment), "{path}");
        }
    }

    /// The client's respelling may be what a service, or another part of the condition, matches.
    #[test]
    fn each_comparison_of_a_condition_sees_both_spellings() {
        let table: [(&str, &[&str], &[&str]); 7] = [
            (
                "path starts_with /api/ and path != /api/health",
                &["/api/x", "/api//health", "/%61pi//health", "/%61pi/health", "/api;x/health", "//api/x"],
                &["/api/health", "/api/health?x", "/files", "//files", "/health"],
            ),
            (
                "not (path starts_with /x or path == /y)",
                &["/a", "//x", "/%78", "/%79", "//y", "/;a/x/b"],
                &["/x", "/x/a", "/x//a", "/y", "/y?a"],
            ),
            ("not (not path == /login)", &["/login", "//login", "/log%69n"], &["/a", "//a"]),
            (
                "not (path starts_with /api/ and path != /api/login)",
                &["/api/login", "/api//login", "/%61pi//login", "/a"],
                &["/api/x", "/api/x/login"],
            ),
            ("path contains // or path ends_with /x", &["//a", "/x", "//x", "/%78"], &["/a", "/%61"]),
            ("path contains /a/ and not path contains //", &["/a/b", "//a/b", "/%61//b"], &["/b", "//b"]),
            ("path exists and not path has /a", &["/b", "//a", "/%61"], &["/a"]),
        ];
        for (condition, with, without) in table {
            for map in [
                format!("{ENTRY}path }}\nkeep: {condition}\nnormalize: path\n"),
                format!(
                    "domain: d\ndescriptors: [{{ entries: [{{ key: k, from: path }}], when: {condition} }}]\n\
                     normalize: path\n"
                ),
            ] {
                let map = for_requests(&map).expect("a valid map");
                let has_limit =
                    |path: &&&str| !request(&map, &[("path", **path)]).expect("a request").0.is_empty();
                assert_eq!(with.iter().find(|path| !has_limit(path)), None, "no limit: {condition}");
                assert_eq!(without.iter().find(has_limit), None, "a limit: {condition}");
            }
        }
    }

    proptest! {
        /// A path has at least the limits of its normalized spelling, and at least those of the spelling as written.
        #[test]
        fn another_spelling_has_at_least_the_limits_of_both_spellings(
            keep in conditions(),
            when in conditions(),
            path in "/([ab/]|//|%61|;b){0,6}",
        ) {
            let text = |end: &str| {
                format!(
                    "domain: d\ndescriptors:\n  - {{ entries: [{{ key: k, value: v }}], when: \"{when}\" }}\n  \
                     - - {{ key: l, value: v }}\nkeep: \"{keep}\"\n{end}"
                )
            };
            let has = |end: &str, path: &str| {
                let map = for_requests(&text(end)).expect("a valid map");
                request(&map, &[("path", path)]).expect("a request").0
            };
            let found = has("normalize: path\n", &path);
            let one_spelling = one_spelling(&path).expect("no segment of dots");
            for of_one in [has("normalize: path\n", &one_spelling), has("", &path)] {
                prop_assert!(of_one.iter().all(|entry| found.contains(entry)), "{of_one:?}, {found:?}");
            }
        }
    }

    fn conditions() -> impl Strategy<Value = String> {
        const TESTS: [&str; 6] = ["==", "!=", "starts_with", "ends_with", "contains", "has"];
        let comparison = (prop::sample::select(&TESTS[..]), "/[ab/]{0,3}");
        let comparison = comparison.prop_map(|(test, text)| format!("path {test} {text}"));
        comparison.prop_recursive(3, 8, 2, |part| {
            prop_oneof![
                (part.clone(), part.clone()).prop_map(|(a, b)| format!("({a} or {b})")),
                (part.clone(), part.clone()).prop_map(|(a, b)| format!("({a} and {b})")),
                part.prop_map(|part| format!("not ({part})")),
            ]
        })
    }

    #[test]
    fn what_is_said_about_the_answer_is_passed_over() {
        let text =
            "path, strip: query }\ntime: { from: start_time }\ngood: code < 400\nwas_limited: flags has RL\n";
        let map = for_requests(&format!("{ENTRY}{text}")).expect("only the path decides");
        assert_eq!(request(&map, &[("path", "/a?b")]), Ok((vec!["k=/a".to_owned()], None)));
    }

    #[test]
    fn a_request_has_the_descriptors_and_the_cost_of_the_map() {
        let text = "http_x_key }\n  - { entries: [{ key: login, from: remote_addr }], when: method == POST }\n\
                    keep: path != /health\ncost: { from: x-units, unit: 10 }\n";
        let map = for_requests(&format!("{ENTRY}{text}")).expect("a valid map");
        let client = ("remote_addr", "192.0.2.1");
        let both = [("path", "/a"), ("method", "POST"), client, ("x-key", "a"), ("x-units", "20.5")];
        assert_eq!(request(&map, &both), Ok((vec!["k=a".to_owned(), "login=192.0.2.1".to_owned()], Some(3))));
        assert_eq!(request(&map, &[client]), Ok((vec![], None)));
        let kept = [("path", "/health"), ("x-key", "a"), ("x-units", "many")];
        assert_eq!(request(&map, &kept), Ok((vec![], None)), "what is not kept has no cost");
        for units in ["many", "12.x", "12."] {
            let fault = request(&map, &[("x-key", "a"), ("x-units", units)]);
            assert_eq!(fault, Err(ValueFault::Cost(units.to_owned())));
        }
    }

    #[test]
    fn another_spelling_of_a_host_is_the_same_host() {
        let text = "authority }\n    - { key: l, value: v }\nkeep: http_host == shop.example.com\n";
        let map = for_requests(&format!("{ENTRY}{text}")).expect("a valid map");
        for host in ["shop.example.com", "Shop.Example.COM", "shop.example.com:8443", "shop.example.com.:80"]
        {
            let found = request(&map, &[("host", host)]).expect("a request").0;
            assert_eq!(found, ["k=shop.example.com,l=v"], "{host}");
        }
        for host in ["shop.example", ":80", "."] {
            assert_eq!(request(&map, &[("host", host)]), Ok((vec![], None)), "{host}");
        }
    }
}
