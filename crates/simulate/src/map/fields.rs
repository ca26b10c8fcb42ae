//! The fields that a map uses, each once.

/// A field of the log, by its position in [`FieldUses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldIndex(pub usize);

/// The names of the fields that a map uses, each with the line of the map on which it is first used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldUses(Vec<(String, u32)>);

impl FieldUses {
    pub fn index(&mut self, name: &str, line: u32) -> FieldIndex {
        let position = self.0.iter().position(|(known, _)| known == name);
        FieldIndex(position.unwrap_or_else(|| {
            self.0.push((name.to_owned(), line));
            self.0.len() - 1
        }))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The name of the field at this position, and the line of its first use.
    pub fn get(&self, index: usize) -> Option<(&str, u32)> {
        self.0.get(index).map(|(name, line)| (name.as_str(), *line))
    }
}
