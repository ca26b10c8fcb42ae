//! Which lane leads to which slot. Lanes are kept over changes of the layout for as long as their node has slots.

use std::sync::Arc;

use super::layout::Range;
use crate::store::redis::address::{Address, SLOTS};
use crate::store::redis::node::Node;

/// A primary and the lane to it.
pub(super) struct Primary {
    pub(super) address: Address,
    pub(super) node: Node,
}

/// The primaries, and which slots each has.
#[derive(Default)]
pub(super) struct SlotMap {
    nodes: Vec<Arc<Primary>>,
    /// By slot: 1 + the place among `nodes`, 0 for nobody. Empty before the first layout.
    owners: Vec<u16>,
    /// Named by a redirect since the last layout; may have no slots yet.
    named: Vec<Address>,
}

impl SlotMap {
    /// Whether a layout has ever been seen.
    pub(super) fn is_known(&self) -> bool {
        !self.owners.is_empty()
    }

    /// The node that has the slot; any for no slot.
    pub(super) fn owner(&self, slot: Option<u16>) -> Option<Arc<Primary>> {
        let Some(slot) = slot else { return fastrand::choice(&self.nodes).cloned() };
        let place = usize::from(*self.owners.get(usize::from(slot))?);
        self.nodes.get(place.checked_sub(1)?).cloned()
    }

    pub(super) fn nodes(&self) -> &[Arc<Primary>] {
        &self.nodes
    }

    /// The node that a redirect named.
    pub(super) fn named(&mut self, address: &Address, open: impl FnOnce(&Address) -> Node) -> Arc<Primary> {
        if !self.named.contains(address) {
            self.named.push(address.clone());
        }
        let place = self.place(address, open);
        Arc::clone(&self.nodes[place])
    }

    /// Gives one slot to a node that a redirect named.
    pub(super) fn give(&mut self, slot: u16, address: &Address) {
        let place = self.nodes.iter().position(|node| node.address == *address);
        if let (Some(place), Some(owner)) = (place, self.owners.get_mut(usize::from(slot))) {
            *owner = number(place);
        }
    }

    /// Takes over a layout. Returns the nodes that left.
    pub(super) fn adopt(&mut self, layout: &[Range], open: impl Fn(&Address) -> Node) -> Vec<Arc<Primary>> {
        let named = std::mem::take(&mut self.named);
        let stays = |node: &Arc<Primary>| {
            named.contains(&node.address) || layout.iter().any(|range| range.primary == node.address)
        };
        let (kept, left) = std::mem::take(&mut self.nodes).into_iter().partition(stays);
        self.nodes = kept;
        self.owners = vec![0; usize::from(SLOTS)];
        for range in layout {
            let place = number(self.place(&range.primary, &open));
            for slot in range.slots.clone() {
                self.owners[usize::from(slot)] = place;
            }
        }
        left
    }

    fn place(&mut self, address: &Address, open: impl FnOnce(&Address) -> Node) -> usize {
        if let Some(place) = self.nodes.iter().position(|node| node.address == *address) {
            return place;
        }
        self.nodes.push(Arc::new(Primary { address: address.clone(), node: open(address) }));
        self.nodes.len() - 1
    }
}

/// How `owners` writes a place. A cluster has at most as many primaries as slots.
fn number(place: usize) -> u16 {
    u16::try_from(place + 1).unwrap_or(0)
}
