//! Bounded numbers of places, shared among clients so that none of them takes all. Knows neither requests nor clocks.
//!
//! A client may hold up to `SHARE_FACTOR` times as many places as are left free (the dynamic threshold of shared switch
//! buffers, Choudhury and Hahne 1998). One client alone gets four fifths; a new client finds a free place, however many there
//! are.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

/// See the module. Of four places or fewer a single client may hold all.
const SHARE_FACTOR: usize = 4;

/// A client, as far as an address tells. All hosts of one IPv6 /64 network count as one: addresses cost their owner nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// All clients whose address is not known.
    pub const UNKNOWN: Self = Self(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        })
    }
}

/// How many of a number of places are taken, and by whom.
#[derive(Debug)]
pub struct Share {
    max: usize,
    taken: usize,
    /// Peers that hold any.
    by_peer: HashMap<Peer, usize, foldhash::fast::RandomState>,
}

impl Share {
    /// So many places, all free.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            taken: 0,
            by_peer: HashMap::default(),
        }
    }

    /// Places taken.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Whether no place is free.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.taken >= self.max
    }

    /// Whether the peer may take one more.
    #[must_use]
    pub fn has_room_for(&self, peer: Peer) -> bool {
        self.has_room_for_many(peer, 1)
    }

    /// Whether the peer may take `count` more, one after the other.
    #[must_use]
    pub fn has_room_for_many(&self, peer: Peer, count: usize) -> bool {
        let Some(others) = count.checked_sub(1) else {
            return true;
        };
        // The last one has the least room.
        let held = self.by_peer.get(&peer).copied().unwrap_or(0);
        let free = self.max.saturating_sub(self.taken).saturating_sub(others);
        held.saturating_add(others) < free.saturating_mul(SHARE_FACTOR)
    }

    /// Takes one place for the peer.
    pub fn take(&mut self, peer: Peer) {
        self.take_many(peer, 1);
    }

    /// Takes `count` places for the peer, whether there is room or not.
    pub fn take_many(&mut self, peer: Peer, count: usize) {
        if count > 0 {
            self.taken += count;
            *self.by_peer.entry(peer).or_insert(0) += count;
        }
    }

    /// Gives back one place that the peer took.
    pub fn give_back(&mut self, peer: Peer) {
        self.give_back_many(peer, 1);
    }

    /// Gives back `count` places that the peer took.
    pub fn give_back_many(&mut self, peer: Peer, count: usize) {
        self.taken -= count;
        if let Some(held) = self.by_peer.get_mut(&peer) {
            *held -= count;
            if *held == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

/// A [`Share`] that many tasks take permits of. Clones are the same places.
#[derive(Clone, Debug)]
pub struct Permits(Arc<Mutex<Share>>);

impl Permits {
    /// So many permits.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Share::new(max))))
    }

    /// A permit for the peer, if its share and the whole allow one.
    #[must_use]
    pub fn try_acquire(&self, peer: Peer) -> Option<Permit> {
        let mut share = self.share();
        share.has_room_for(peer).then(|| {
            share.take(peer);
            Permit {
                permits: self.clone(),
                peer,
            }
        })
    }

    /// Lowers the number of permits to `max`. Those taken beyond it stay valid.
    pub fn lower(&self, max: usize) {
        let mut share = self.share();
        share.max = share.max.min(max);
    }

    fn share(&self) -> MutexGuard<'_, Share> {
        // A share is whole between its methods, and these do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of [`Permits`], given back when dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    peer: Peer,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.share().give_back(self.peer);
    }
}

#[cfg(test)]
mod tests;
