//! Which pairs of a YAML map count, after repeated keys and merge keys (`<<`).

use std::collections::HashMap;

use super::report::{At, Report};
use super::scalar::Meaning;
use super::yaml::{Content, Node};

/// A key that counts, after merge keys and repetitions are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'n> {
    /// The line of the key.
    pub line: u32,
    /// `None` where the key is not text.
    pub name: Option<&'n str>,
    pub key: &'n Node,
    pub value: &'n Node,
}

/// The pairs that count, in the order of their first mention. As in the reference service's parser, what stands later
/// wins, merged or not; both cases in which that is surprising are warned of.
pub(super) fn effective<'n>(pairs: &'n [(Node, Node)], at: &At, report: &mut Report) -> Vec<Pair<'n>> {
    let mut kept = Kept::default();
    for (key, value) in pairs {
        let is_merge =
            matches!(&key.content, Content::Scalar(scalar) if scalar.is_plain && &*scalar.text == "<<");
        if is_merge {
            for pair in merged(value, &at.on(key.line), report) {
                kept.put(pair, Origin::Merged(key.line), at, report);
            }
        } else {
            let pair = Pair { line: key.line, name: name(key), key, value };
            kept.put(pair, Origin::Written, at, report);
        }
    }
    kept.pairs.into_iter().map(|(pair, _)| pair).collect()
}

/// What a merge key brings: of several maps the first wins.
fn merged<'n>(value: &'n Node, at: &At, report: &mut Report) -> Vec<Pair<'n>> {
    match &value.content {
        Content::Map(pairs) => effective(pairs, at, report),
        Content::List(nodes) if nodes.iter().all(Node::is_map) => {
            nodes.iter().rev().flat_map(|node| merged(node, at, report)).collect()
        }
        _ => {
            report.error(
                at,
                "error loading config file: map merge requires map or sequence of maps as the value",
            );
            Vec::new()
        }
    }
}

fn name(key: &Node) -> Option<&str> {
    match &key.content {
        Content::Scalar(scalar) if scalar.meaning() == Meaning::Text => Some(&scalar.text),
        _ => None,
    }
}

/// How a key came into a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Written,
    /// By the merge key on that line.
    Merged(u32),
}

#[derive(Default)]
struct Kept<'n> {
    pairs: Vec<(Pair<'n>, Origin)>,
    places: HashMap<&'n str, usize>,
}

impl<'n> Kept<'n> {
    fn put(&mut self, pair: Pair<'n>, origin: Origin, at: &At, report: &mut Report) {
        let Some(name) = pair.name else {
            self.pairs.push((pair, origin));
            return;
        };
        let Some(&place) = self.places.get(name) else {
            self.places.insert(name, self.pairs.len());
            self.pairs.push((pair, origin));
            return;
        };
        let (earlier, earlier_origin) = self.pairs[place];
        match (earlier_origin, origin) {
            (Origin::Written, Origin::Written) => report.warn(
                &at.on(pair.line),
                format!("'{name}' stands here and on line {}; this one counts", earlier.line),
            ),
            (Origin::Written, Origin::Merged(line)) => report.warn(
                &at.on(line),
                format!(
                    "the merged map overrides '{name}' of line {}; put '<<' first to keep that",
                    earlier.line
                ),
            ),
            (Origin::Merged(_), _) => {}
        }
        self.pairs[place] = (pair, origin);
    }
}
