//! Random calls: takes, checks, refunds and settles, several in one call.

use super::Plot;
use crate::story::{Ask, Call, OwnLimit, Returned};

const JUNK: [&str; 5] = ["junk1", "junk2", "1.zz1", "1.zz2", "1.zz3.1-2-3"];

impl Plot {
    pub(super) fn call(&mut self, id: u32) -> Call {
        let count = self.random.weighted(&[(40, 1), (25, 2), (15, 3), (8, 4), (5, 6)]);
        let domain = self.random.weighted(&[(95, "d"), (4, "e"), (1, "elsewhere")]).to_owned();
        let descriptors: Vec<_> = (0..count).map(|_| self.ask()).collect();
        for ask in descriptors.iter().filter(|ask| ask.receipt.is_none() && !ask.refund) {
            self.called.push((id, ask.entries.clone()));
        }
        let hits_addend = self.random.weighted(&[(7, 0), (2, 1), (2, 2)]);
        Call { id, process: self.random.pick(&[0, 0, 1]), domain, hits_addend, descriptors }
    }

    fn ask(&mut self) -> Ask {
        if self.random.chance(28) {
            return self.settle();
        }
        // The first few entries of the pool are met most often.
        let most = self.pool.len() as u64;
        let few = most.min(3);
        let chosen = if self.random.chance(75) { self.random.below(few) } else { self.random.below(most) };
        let mut entries = self.pool[usize::try_from(chosen).unwrap_or_default()].clone();
        if self.random.chance(2) {
            entries.push(("unknown".to_owned(), "v".to_owned()));
        }
        let limit = self.random.chance(4).then(|| self.own_limit());
        Ask { entries, limit, hits: self.hits(), refund: self.random.chance(9), receipt: None }
    }

    fn hits(&mut self) -> Option<u64> {
        match self.random.below(100) {
            0..22 => None,
            22..30 => Some(0),
            30..55 => Some(1),
            55..85 => Some(self.random.between(2, 6)),
            85..95 => Some(self.random.between(7, 40)),
            95..98 => Some(self.random.between(41, 300)),
            98 => Some(1 << 33),
            _ => Some(u64::MAX),
        }
    }

    fn settle(&mut self) -> Ask {
        let recent = self.called.len().saturating_sub(6);
        let of_call =
            if self.called.is_empty() { None } else { Some(self.random.pick(&self.called[recent..])) };
        let (receipt, mut entries) = match of_call {
            Some((id, entries)) if self.random.chance(80) => (Returned::Of(id), entries),
            _ => (Returned::Text(self.random.pick(&JUNK).to_owned()), self.random.pick(&self.pool)),
        };
        if self.random.chance(6) {
            entries = self.random.pick(&self.pool);
        }
        let hits = self.random.weighted(&[
            (5, Some(0)),
            (3, Some(1)),
            (3, Some(3)),
            (2, Some(8)),
            (1, Some(30)),
            (1, None),
        ]);
        Ask { entries, limit: None, hits, refund: false, receipt: Some(receipt) }
    }

    fn own_limit(&mut self) -> OwnLimit {
        let (requests_per_unit, unit, unit_multiplier) = self.random.pick(&[
            (3, "SECOND", None),
            (5, "MINUTE", Some(3)),
            (20, "MINUTE", None),
            (0, "DAY", None),
            (7, "HOUR", Some(2)),
            (2, "MONTH", None),
            (u32::MAX, "YEAR", None),
        ]);
        OwnLimit { requests_per_unit, unit: unit.to_owned(), unit_multiplier }
    }
}
