//! Receipts: short strings of what an admitted request recorded, which its caller returns with the real cost.
//!
//! Format: `1.<nonce>.<item>.<item>`, one item `<check>-<units>-<grant>` per recorded charge, plus `-<limit>` for GCRA,
//! numbers in base 36. The check is part of the counter key's hash, so an item never applies to another counter.
//! Receipts hold no keys, values or secrets. They are not signed: any caller can return units without one anyway.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::limit::algorithm::Grant;

/// The key of the entry that returns a receipt: the last entry of a descriptor. Rules cannot match it.
pub const RECEIPT_KEY: &str = "ratelimitd_receipt";

/// This key in the last entry of a descriptor renews slots by their receipt. Rules cannot match it.
pub const RENEW_KEY: &str = "ratelimitd_renew";

/// The version, which is the first field.
const VERSION: &str = "1";

/// Most items in a receipt; further charges of the request get none.
const MAX_ITEMS: usize = 256;

/// Longest receipt: the version, a nonce of 13 digits, and items of numbers below 2^48, 2^53, 2^53 and 2^32.
const MAX_TEXT: usize = 1 + 1 + 13 + MAX_ITEMS * (1 + 10 + 1 + 11 + 1 + 11 + 1 + 7);

const BASE: u64 = 36;

/// Numbers of an item are below this, so that every store holds them exactly.
const EXACT: u64 = 1 << 53;

/// Records what an admitted request charged. `Display` and `FromStr` are its wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Distinguishes receipts with the same items.
    pub nonce: u64,
    items: SmallVec<[ReceiptItem; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptItem {
    /// 48 bits of the hash of the counter key.
    check: u64,
    /// Units recorded, at least 1.
    pub units: u64,
    pub grant: Grant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the receipt")]
pub struct UnreadableReceipt;

impl Receipt {
    /// A receipt without items: nothing was recorded.
    pub fn new(nonce: u64) -> Self {
        Self { nonce, items: SmallVec::new() }
    }

    /// Adds a recorded charge. Charges to one counter share an item, with the grant of the first.
    pub(crate) fn add(&mut self, key: &str, units: u64, grant: Grant) {
        let check = check_of(key);
        if let Some(item) = self.items.iter_mut().find(|item| item.check == check) {
            item.units = (item.units + units).min(EXACT - 1);
        } else if self.items.len() < MAX_ITEMS {
            self.items.push(ReceiptItem { check, units, grant });
        }
    }

    pub(crate) fn has_several_items(&self) -> bool {
        self.items.len() > 1
    }

    /// Returns what was recorded under this counter key.
    pub fn item(&self, key: &str) -> Option<&ReceiptItem> {
        if self.items.is_empty() {
            return None;
        }
        let check = check_of(key);
        self.items.iter().find(|item| item.check == check)
    }
}

/// The first 48 bits of the SHA-256 of a counter key.
fn check_of(key: &str) -> u64 {
    let hash = Sha256::digest(key);
    hash[..6].iter().fold(0, |check, &byte| check << 8 | u64::from(byte))
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}.{}", Base36(self.nonce))?;
        for ReceiptItem { check, units, grant } in &self.items {
            write!(f, ".{}-{}-{}", Base36(*check), Base36(*units), Base36(grant.id))?;
            if let Some(limit) = grant.limit {
                write!(f, "-{}", Base36(u64::from(limit.get())))?;
            }
        }
        Ok(())
    }
}

/// Accepts input of any length and content, in bounded time and memory.
impl FromStr for Receipt {
    type Err = UnreadableReceipt;

    fn from_str(text: &str) -> Result<Self, UnreadableReceipt> {
        if text.len() > MAX_TEXT {
            return Err(UnreadableReceipt);
        }
        let mut fields = text.split('.');
        if fields.next() != Some(VERSION) {
            return Err(UnreadableReceipt);
        }
        let nonce = fields.next().and_then(base36).ok_or(UnreadableReceipt)?;
        let items = fields.map(ReceiptItem::parse).collect::<Option<SmallVec<_>>>();
        let items = items.filter(|items| items.len() <= MAX_ITEMS).ok_or(UnreadableReceipt)?;
        Ok(Self { nonce, items })
    }
}

impl ReceiptItem {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').map(|digits| base36(digits).filter(|&number| number < EXACT));
        let (check, units, id) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let limit = match numbers.next() {
            Some(limit) => Some(NonZeroU32::try_from(u32::try_from(limit?).ok()?).ok()?),
            None => None,
        };
        let item = Self { check, units, grant: Grant { id, limit } };
        (numbers.next().is_none() && item.units > 0).then_some(item)
    }
}

/// In digits and lower-case letters.
pub(super) struct Base36(pub(super) u64);

impl fmt::Display for Base36 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 36^13 exceeds 2^64.
        let mut digits = [0; 13];
        let mut first = digits.len();
        let mut rest = self.0;
        loop {
            first -= 1;
            // A remainder below 36.
            digits[first] = b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % BASE) as usize];
            rest /= BASE;
            if rest == 0 {
                break;
            }
        }
        digits[first..].iter().try_for_each(|&digit| fmt::Write::write_char(f, char::from(digit)))
    }
}

/// `None` unless the string is a base-36 number below 2^64.
pub(super) fn base36(digits: &str) -> Option<u64> {
    let digit = |byte| match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'z' => Some(u64::from(byte - b'a') + 10),
        _ => None,
    };
    let add = |number: u64, byte| number.checked_mul(BASE)?.checked_add(digit(byte)?);
    if digits.is_empty() { None } else { digits.bytes().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "{llm|tenant=acme}#fw:1000/60000000";

    fn grant(id: u64) -> Grant {
        Grant { id, limit: None }
    }

    #[test]
    fn a_receipt_reads_as_documented() {
        let mut receipt = Receipt::new(35);
        assert_eq!(receipt.to_string(), "1.z");
        receipt.add(KEY, 400, grant(28_333_334));
        // The check is the start of the SHA-256 of the key: sha256sum, first 12 digits, in base 36.
        assert_eq!(receipt.to_string(), "1.z.2mwte8wx9j-b4-gva52");
        receipt.add("another", 1, Grant { id: 0, limit: NonZeroU32::new(1_000) });
        assert!(receipt.to_string().ends_with("-1-0-rs"), "1,000 in base 36");
        receipt.add(KEY, 100, grant(28_333_335));
        let item = *receipt.item(KEY).expect("an item");
        assert_eq!((item.units, item.grant), (500, grant(28_333_334)), "the units of one counter are added");
        assert_eq!(receipt.item("another").map(|item| item.units), Some(1));
        assert_eq!(receipt.item("a third"), None);
    }

    #[test]
    fn the_longest_receipt_is_read() {
        let mut receipt = Receipt::new(u64::MAX);
        for number in 0..300 {
            receipt.add(
                &number.to_string(),
                EXACT - 1,
                Grant { id: EXACT - 1, limit: Some(NonZeroU32::MAX) },
            );
        }
        let text = receipt.to_string();
        assert!(text.len() <= MAX_TEXT, "{} bytes", text.len());
        assert_eq!(text.parse(), Ok(receipt));
        assert_eq!(text.split('.').count(), 2 + MAX_ITEMS, "the other charges have no item");
    }

    #[test]
    fn another_text_is_unreadable() {
        let long = format!("1.z{}", ".1-1-1".repeat(MAX_ITEMS + 1));
        let texts = [
            "",
            ".",
            "1",
            "1.",
            "2.z",
            "01.z",
            " 1.z",
            "1.z ",
            "1.Z",
            "1.+z",
            "1.-z",
            "1.z.",
            "1.z.1",
            "1.z.1-2",
            "1.z.1-2-",
            "1.z.1-2-3-4-5",
            "1.z.1-2-3-",
            "1.z.1-2-3-0",
            // 2^32 in base 36.
            "1.z.1-2-3-1z141z4",
            "1.z.1-0-3",
            "1.z..1-2-3",
            "1.z.1-2-\u{fc}",
            "1.3w5e11264sgsg",
            &long,
            // 2^53 in base 36.
            "1.z.1-1-2gosa7pa2gw",
            "1.z.1-2gosa7pa2gw-1",
        ];
        for text in texts {
            assert_eq!(text.parse::<Receipt>(), Err(UnreadableReceipt), "{text:?}");
        }
        assert!("1.z.1-2-3".parse::<Receipt>().is_ok());
        assert!("1.z.1-2-3-1z141z3".parse::<Receipt>().is_ok(), "2^32 - 1");
        assert!("1.z.1-2gosa7pa2gv-2gosa7pa2gv".parse::<Receipt>().is_ok(), "2^53 - 1");
        assert_eq!("1".repeat(1 << 24).parse::<Receipt>(), Err(UnreadableReceipt));
    }

    proptest! {
        #[test]
        fn a_receipt_that_is_written_is_read(nonce: u64, items in prop::collection::vec((any::<u8>(), 1..EXACT / 64, 0..EXACT, any::<u32>()), 0..8)) {
            let mut receipt = Receipt::new(nonce);
            for (key, units, id, limit) in items {
                receipt.add(&key.to_string(), units, Grant { id, limit: NonZeroU32::new(limit) });
            }
            prop_assert_eq!(receipt.to_string().parse(), Ok(receipt));
        }

        #[test]
        fn any_text_is_read_or_unreadable(text in "[0-9a-z.\\-]{0,80}") {
            if let Ok(receipt) = text.parse::<Receipt>() {
                // A number may have leading zeros.
                prop_assert_eq!(receipt.to_string().parse(), Ok(receipt));
            }
        }
    }
}
