//! Reads DER, the encoding of certificates: elements of a tag, a length and a content.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;

/// The elements that were not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'d>(pub(super) &'d [u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    pub(super) content: &'d [u8],
}

impl<'d> Elements<'d> {
    /// The content of the next element, if it has this tag. Another element is not read.
    pub(super) fn content_of(&mut self, tag: u8) -> Option<&'d [u8]> {
        let before = *self;
        match self.next() {
            Some(element) if element.tag == tag => Some(element.content),
            _ => {
                *self = before;
                None
            }
        }
    }

    /// The elements inside the next element, if it has this tag.
    pub(super) fn inside(&mut self, tag: u8) -> Option<Self> {
        self.content_of(tag).map(Self)
    }
}

/// Ends at the first element that is not complete.
impl<'d> Iterator for Elements<'d> {
    type Item = Element<'d>;

    fn next(&mut self) -> Option<Element<'d>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        // A first byte from 128 on is the number of bytes of the length.
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Element { tag, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_short_and_long_lengths_and_end_where_bytes_are_missing() {
        let long = [&[SEQUENCE, 0x82, 0x01, 0x00][..], &[7; 256]].concat();
        let bytes = [&[INTEGER, 1, 5][..], &[OCTET_STRING, 0], &[SEQUENCE, 0x81, 2, 8, 9], &long].concat();
        let lengths: Vec<_> = Elements(&bytes).map(|element| (element.tag, element.content.len())).collect();
        assert_eq!(lengths, [(INTEGER, 1), (OCTET_STRING, 0), (SEQUENCE, 2), (SEQUENCE, 256)]);
        for cut in [&bytes[..1], &[SEQUENCE, 0x80], &[SEQUENCE, 0x85, 0, 0, 0, 0, 0], &[SEQUENCE, 0x84, 255]]
        {
            assert_eq!(Elements(cut).next(), None, "{cut:?}");
        }
        assert_eq!(Elements(&long[..259]).next(), None);
        assert_eq!(Elements(&[SEQUENCE, 0x84, 255, 255, 255, 255, 0]).next(), None);
    }

    #[test]
    fn an_element_of_another_tag_is_not_read() {
        let mut elements = Elements(&[INTEGER, 1, 5, SEQUENCE, 2, INTEGER, 0]);
        assert_eq!(elements.content_of(SEQUENCE), None);
        assert_eq!(elements.content_of(INTEGER), Some(&[5][..]));
        let mut inside = elements.inside(SEQUENCE).expect("a sequence");
        assert_eq!((inside.content_of(INTEGER), inside.next()), (Some(&[][..]), None));
    }
}
