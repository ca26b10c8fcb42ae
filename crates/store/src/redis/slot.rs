//! Slots of a Redis Cluster: computes a key's slot, and makes keys for a slot.

use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};

pub(crate) const SLOTS: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns a key's slot: the checksum of the part between its first `{` and the next `}`, or of the whole key if that
/// part is empty or missing.
pub(crate) fn slot_of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    CRC.checksum(hashed.as_bytes()) % SLOTS
}

/// Returns a hash tag for keys of this slot: an integer whose decimal digits have the slot.
pub(crate) fn tag_for_slot(slot: u16) -> u32 {
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let (mut tags, mut found) = (vec![None; usize::from(SLOTS)], 0);
        // A test shows that every slot has an integer below 10^6.
        for number in 0..1_000_000 {
            let tag = &mut tags[usize::from(slot_of_key(&number.to_string()))];
            found += usize::from(tag.is_none());
            tag.get_or_insert(number);
            if found == usize::from(SLOTS) {
                break;
            }
        }
        tags.into_iter().map(Option::unwrap_or_default).collect()
    });
    TAGS[usize::from(slot % SLOTS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // From `CLUSTER KEYSLOT` of Redis 7.0.
        let table = [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("foo{bar}", 5_061),
            ("bar", 5_061),
            ("{bar}#x", 5_061),
            ("foo{}{bar}", 8_363), // an empty tag does not count
            ("foo{{bar}}zap", 4_015),
        ];
        for (key, expected) in table {
            assert_eq!(slot_of_key(key), expected, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        assert!(
            (0..SLOTS).all(|number| slot_of_key(&format!("any{{{}}}thing", tag_for_slot(number))) == number)
        );
    }
}
