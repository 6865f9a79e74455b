//! The slots of a model: each is a row of the page table, and has a request or is free.

use crate::decode::request::Request;

/// The requests that have a slot.
pub(super) struct Slots {
    /// The request of each slot; `None`: the slot is free.
    requests: Vec<Option<Request>>,
    /// The slots with a request, in the order of their assignment.
    assigned: Vec<u32>,
}

impl Slots {
    /// Creates free slots.
    pub(super) fn new(count: u32) -> Self {
        Self {
            requests: (0..count).map(|_| None).collect(),
            assigned: Vec::with_capacity(count as usize),
        }
    }

    /// Returns a free slot.
    pub(super) fn free(&self) -> Option<u32> {
        let mut slots = (0..).zip(&self.requests);
        slots.find_map(|(slot, request)| request.is_none().then_some(slot))
    }

    /// Assigns its slot, which is free, to a request.
    pub(super) fn assign(&mut self, request: Request) {
        let slot = request.slot;
        let before = self.requests[slot as usize].replace(request);
        assert!(before.is_none(), "slot {slot} is free");
        self.assigned.push(slot);
    }

    /// Frees a slot and returns its request.
    pub(super) fn vacate(&mut self, slot: u32) -> Request {
        self.assigned.retain(|assigned| *assigned != slot);
        let request = self.requests[slot as usize].take();
        request.expect("the slot has a request")
    }

    /// Returns the request of a slot, if it has one.
    pub(super) fn get(&self, slot: u32) -> Option<&Request> {
        self.requests[slot as usize].as_ref()
    }

    /// Returns the request of a slot, if it has one.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Request> {
        self.requests[slot as usize].as_mut()
    }

    /// Returns the slot that was assigned after `at` others.
    pub(super) fn nth(&self, at: usize) -> Option<u32> {
        self.assigned.get(at).copied()
    }

    /// Returns the requests, the one that got its slot first at the beginning.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> + Clone {
        self.assigned.iter().filter_map(|slot| self.get(*slot))
    }

    /// Returns the slot of the first of them for which `is_it` returns true.
    pub(super) fn find(&self, is_it: impl Fn(&Request) -> bool) -> Option<u32> {
        let mut requests = self.iter();
        let found = requests.find(|request| is_it(request));
        found.map(|request| request.slot)
    }

    /// Returns the requests in the order of their slots.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.requests.iter_mut().flatten()
    }

    /// Returns whether all slots are free.
    pub(super) fn is_empty(&self) -> bool {
        self.assigned.is_empty()
    }
}
