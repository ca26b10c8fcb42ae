//! Rows that give a value of a request another limit than its rule says.

mod tier_table;

pub use tier_table::{Added, Space, TierMark, TierTable, TierTableBuilder};
