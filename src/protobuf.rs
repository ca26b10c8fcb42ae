//! Walks over the fields of an encoded protobuf message without decoding it: an empty message takes two bytes of the
//! message around it and a hundred in memory, so fields are counted before they are decoded. Knows of the encoding what
//! the walk needs, and allocates nothing.

/// The bytes are no protobuf encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its fields cannot be counted")]
pub struct UncountableFields;

/// One field of a message.
pub struct Field<'m> {
    /// 0 for a field within a group: the messages of this service have no groups.
    pub number: u64,
    /// Empty unless the field has a length.
    pub content: &'m [u8],
}

/// The fields of a message, one after another.
pub struct Fields<'m> {
    rest: &'m [u8],
    open_groups: usize,
}

impl<'m> Fields<'m> {
    /// The fields of an encoded message.
    #[must_use]
    pub fn of_message(message: &'m [u8]) -> Self {
        Self { rest: message, open_groups: 0 }
    }

    /// The next field; `None` at the end.
    ///
    /// # Errors
    /// [`UncountableFields`] if the rest is no protobuf encoding.
    pub fn next_field(&mut self) -> Result<Option<Field<'m>>, UncountableFields> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.field().map(Some).ok_or(UncountableFields)
    }

    fn field(&mut self) -> Option<Field<'m>> {
        let tag = self.varint()?;
        let mut content = &[][..];
        match tag & 7 {
            0 => {
                self.varint()?;
            }
            1 => {
                self.take(8)?;
            }
            2 => {
                let length = self.varint()?;
                content = self.take(length)?;
            }
            3 => self.open_groups += 1,
            4 => self.open_groups = self.open_groups.checked_sub(1)?,
            5 => {
                self.take(4)?;
            }
            _ => return None,
        }
        let number = if self.open_groups == 0 { tag >> 3 } else { 0 };
        Some(Field { number, content })
    }

    /// A number in groups of seven bits, the lowest first.
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'m [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }
}
