//! A set of API servers.

/// A set of endpoints, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointMask(u16);

/// Maximum number of endpoints.
pub const ENDPOINTS_MAX: usize = u16::BITS as usize;

impl EndpointMask {
    pub(super) const fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    pub(super) const fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(super) const fn remove(&mut self, index: usize) {
        self.0 &= !(1 << index);
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
