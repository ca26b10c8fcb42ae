//! Pieces of wildcards that end with other pieces, as the piece of `*/v1*` ends with that of `*1*`. Where a text has
//! the longest of them it has all of them, and matching looks at each. So the pieces of one level may nest only so
//! deep: whatever the rules are, the time for a value grows with its length.

use engine::Pattern;

/// Far more than different words nest.
pub(super) const MAX_NESTED_PIECES: usize = 16;

/// The index of a pattern with a piece that ends with too many other pieces of the level; `None` if there is none.
pub(super) fn too_deep<'p>(patterns: impl Iterator<Item = (usize, &'p Pattern)>) -> Option<usize> {
    let reversed = |piece: &str| piece.bytes().rev().collect::<Vec<u8>>();
    let mut pieces: Vec<(Vec<u8>, usize)> = patterns
        .flat_map(|(index, pattern)| pattern.pieces().map(move |piece| (reversed(piece), index)))
        .collect();
    // Read backwards, a piece starts with the pieces that it ends with, and comes after them.
    pieces.sort_unstable();
    pieces.dedup_by(|later, earlier| later.0 == earlier.0);
    let mut nested: Vec<&[u8]> = Vec::new();
    for (piece, index) in &pieces {
        while nested.last().is_some_and(|outer| !piece.starts_with(outer)) {
            nested.pop();
        }
        nested.push(piece);
        if nested.len() > MAX_NESTED_PIECES {
            return Some(*index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_deep_in(texts: &[String]) -> Option<usize> {
        let patterns: Vec<_> = texts.iter().map(|text| Pattern::new(text).expect("has a star")).collect();
        too_deep(patterns.iter().enumerate())
    }

    #[test]
    fn sixteen_pieces_may_end_with_each_other() {
        let nested = |count: usize| (1..=count).map(|length| format!("k_*{}*", "a".repeat(length)));
        let (at_bound, above): (Vec<_>, Vec<_>) = (nested(16).collect(), nested(17).collect());
        assert_eq!(too_deep_in(&at_bound), None);
        assert_eq!(too_deep_in(&above), Some(16));
        // The same pieces in several patterns, or in one.
        assert_eq!(too_deep_in(&[at_bound.clone(), at_bound.clone()].concat()), None);
        assert!(too_deep_in(&[above.concat()]).is_some());
        // Pieces that begin with each other do not end together.
        let prefixes: Vec<_> = (1..100).map(|length| format!("k_*b{}*", "a".repeat(length))).collect();
        assert_eq!(too_deep_in(&prefixes), None);
    }
}
