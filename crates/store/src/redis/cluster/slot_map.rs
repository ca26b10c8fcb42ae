//! Maps each slot to its primary, as the nodes last reported it. A primary and its client are kept while a report or a
//! redirect names the primary. Generic over the client `N`.

use std::sync::Arc;

use super::slot_ranges::SlotRange;
use crate::redis::address::Address;
use crate::redis::slot::SLOTS;

pub(super) struct Primary<N> {
    pub(super) address: Address,
    pub(super) node: N,
}

pub(super) struct SlotMap<N> {
    primaries: Vec<Arc<Primary<N>>>,
    /// For each slot 1 + its index in `primaries`, or 0 if no primary serves it. Empty before the first report.
    owners: Vec<u16>,
    /// Primaries that redirects named since the last report. They are kept because the next report may be older than
    /// the redirect.
    redirect_targets: Vec<Address>,
}

impl<N> SlotMap<N> {
    /// `true` once a node has reported the slots.
    pub(super) fn is_loaded(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Returns the primary that serves the slot, or any primary for `None`.
    pub(super) fn owner(&self, slot: Option<u16>) -> Option<Arc<Primary<N>>> {
        let Some(slot) = slot else { return fastrand::choice(&self.primaries).cloned() };
        let owner = usize::from(*self.owners.get(usize::from(slot))?);
        self.primaries.get(owner.checked_sub(1)?).cloned()
    }

    /// Returns the first slot of each primary that serves one.
    pub(super) fn first_slots(&self) -> Vec<u16> {
        let first_of = |index| {
            let first = self.owners.iter().position(|owner| *owner == owner_number(index))?;
            u16::try_from(first).ok()
        };
        (0..self.primaries.len()).filter_map(first_of).collect()
    }

    pub(super) fn primaries(&self) -> &[Arc<Primary<N>>] {
        &self.primaries
    }

    /// Returns the primary that a redirect named; `open` creates its client if it is new.
    pub(super) fn redirect_target(
        &mut self,
        address: &Address,
        open: impl FnOnce(&Address) -> N,
    ) -> Arc<Primary<N>> {
        if !self.redirect_targets.contains(address) {
            self.redirect_targets.push(address.clone());
        }
        let index = self.index_of(address, open);
        Arc::clone(&self.primaries[index])
    }

    /// Assigns a slot to a primary that a redirect named.
    pub(super) fn assign_slot(&mut self, slot: u16, address: &Address) {
        let index = self.primaries.iter().position(|primary| primary.address == *address);
        if let (Some(index), Some(owner)) = (index, self.owners.get_mut(usize::from(slot))) {
            *owner = owner_number(index);
        }
    }

    /// Takes over a report; `open` creates the clients of new primaries. Returns the primaries that left.
    pub(super) fn update(
        &mut self,
        reported: &[SlotRange],
        open: impl Fn(&Address) -> N,
    ) -> Vec<Arc<Primary<N>>> {
        let redirect_targets = std::mem::take(&mut self.redirect_targets);
        let stays = |primary: &Arc<Primary<N>>| {
            redirect_targets.contains(&primary.address)
                || reported.iter().any(|range| range.primary == primary.address)
        };
        let (kept, left) = std::mem::take(&mut self.primaries).into_iter().partition(stays);
        self.primaries = kept;
        self.owners = vec![0; usize::from(SLOTS)];
        for range in reported {
            let owner = owner_number(self.index_of(&range.primary, &open));
            for slot in range.slots.clone() {
                self.owners[usize::from(slot)] = owner;
            }
        }
        left
    }

    fn index_of(&mut self, address: &Address, open: impl FnOnce(&Address) -> N) -> usize {
        if let Some(index) = self.primaries.iter().position(|primary| primary.address == *address) {
            return index;
        }
        self.primaries.push(Arc::new(Primary { address: address.clone(), node: open(address) }));
        self.primaries.len() - 1
    }
}

impl<N> Default for SlotMap<N> {
    fn default() -> Self {
        Self { primaries: Vec::new(), owners: Vec::new(), redirect_targets: Vec::new() }
    }
}

/// The value of an index in `owners`. A cluster has at most as many primaries as slots.
fn owner_number(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str) -> Address {
        Address { host: host.to_owned(), port: 7_000 }
    }

    fn report(ranges: &[(u16, u16, &str)]) -> Vec<SlotRange> {
        let range = |&(first, last, host): &(u16, u16, &str)| SlotRange {
            slots: first..=last,
            primary: address(host),
        };
        ranges.iter().map(range).collect()
    }

    fn host(primary: Option<Arc<Primary<()>>>) -> Option<String> {
        primary.map(|primary| primary.address.host.clone())
    }

    /// Hosts that own slots 0, 5, 6 and the last one.
    fn owners(map: &SlotMap<()>) -> [Option<String>; 4] {
        [0, 5, 6, SLOTS - 1].map(|slot| host(map.owner(Some(slot))))
    }

    fn hosts<const K: usize>(hosts: [&str; K]) -> [Option<String>; K] {
        hosts.map(|host| (!host.is_empty()).then(|| host.to_owned()))
    }

    #[test]
    fn before_the_first_report_no_slot_has_an_owner() {
        let mut map = SlotMap::<()>::default();
        assert!(!map.is_loaded() && map.owner(None).is_none());
        assert_eq!(owners(&map), hosts(["", "", "", ""]));
        map.redirect_target(&address("a"), |_| ());
        map.assign_slot(5, &address("a"));
        assert!(!map.is_loaded(), "a redirect is not a report");
    }

    #[test]
    fn an_update_assigns_ranges_and_returns_the_primaries_that_left() {
        let mut map = SlotMap::<()>::default();
        assert!(map.update(&report(&[(0, 5, "a"), (6, 100, "b")]), |_| ()).is_empty());
        assert!(map.is_loaded());
        assert_eq!(owners(&map), hosts(["a", "a", "b", ""]));
        assert_eq!(map.first_slots(), [0, 6]);
        assert!(host(map.owner(None)).is_some_and(|host| ["a", "b"].contains(&host.as_str())));

        let left = map.update(&report(&[(0, SLOTS - 1, "b")]), |_| ());
        assert_eq!(left.iter().map(|primary| primary.address.host.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(owners(&map), hosts(["b", "b", "b", "b"]));
    }

    #[test]
    fn a_primary_that_stays_keeps_its_client() {
        let mut map = SlotMap::<u32>::default();
        map.update(&report(&[(0, 5, "a"), (6, 100, "b")]), |_| 1);
        map.update(&report(&[(0, 5, "c"), (6, 100, "b")]), |_| 2);
        let clients = [5, 6].map(|slot| map.owner(Some(slot)).map(|primary| primary.node));
        assert_eq!(clients, [Some(2), Some(1)]);
    }

    #[test]
    fn a_redirect_moves_one_slot_until_the_next_report() {
        let mut map = SlotMap::<()>::default();
        map.update(&report(&[(0, SLOTS - 1, "a")]), |_| ());
        map.redirect_target(&address("b"), |_| ());
        map.assign_slot(5, &address("b"));
        assert_eq!(owners(&map), hosts(["a", "b", "a", "a"]));
        map.assign_slot(6, &address("unknown"));
        assert_eq!(owners(&map), hosts(["a", "b", "a", "a"]), "only a known primary can own a slot");

        // A report older than the redirect does not name its target.
        assert!(map.update(&report(&[(0, SLOTS - 1, "a")]), |_| ()).is_empty(), "the target stays");
        assert_eq!(owners(&map), hosts(["a", "a", "a", "a"]));
        let left = map.update(&report(&[(0, SLOTS - 1, "a")]), |_| ());
        assert_eq!(left.len(), 1, "the second report without it removes the target");
    }
}
