//! Bounded numbers of places, shared among clients so that none of them takes all. Knows neither requests nor clocks.
//!
//! A client may hold up to `SHARE_FACTOR` times as many places as are left free (the dynamic threshold of shared switch
//! buffers, Choudhury and Hahne 1998). One client alone gets four fifths; a new client finds a free place, however many there
//! are.
//!
//! A client is an address until its user is known. Then its places count as the user's, and as the address' against a looser
//! threshold: users behind one address do not lock each other out, and one who has many users does not get everything
//! (`docs/decisions/0034-shares-of-users.md`).

pub mod fair_queue;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

/// See the module. Of four places or fewer a single client may hold all.
const SHARE_FACTOR: usize = 4;
/// The same for all known users behind one address: a sixteenth of what they hold stays free for others.
const ADDRESS_FACTOR: usize = 16;

/// A client, as far as it is known. All hosts of one IPv6 /64 network count as one: addresses cost their owner nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    address: IpAddr,
    user: Option<UserKey>,
    class: Class,
    is_operator: bool,
}

/// A user, by a keyed hash: nobody can make two users, or two tokens, look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UserKey(u64);

/// Which bounds hold for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    Ordinary,
    /// Those of all clients together, but no share.
    Exempt,
}

impl Peer {
    /// All clients whose address is not known.
    pub const UNKNOWN: Self = Self::at(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

    const fn at(address: IpAddr) -> Self {
        Self {
            address,
            user: None,
            class: Class::Ordinary,
            is_operator: false,
        }
    }

    /// The same, through the listener for operators.
    #[must_use]
    pub const fn operator(self) -> Self {
        Self {
            is_operator: true,
            ..self
        }
    }

    /// Whether it came through the listener for operators, and takes places of theirs.
    #[must_use]
    pub const fn is_operator(self) -> bool {
        self.is_operator
    }

    /// What it has in common with those whose places count together: the address, unless shares do not limit it.
    #[must_use]
    pub const fn group(self) -> Self {
        match self.class {
            Class::Ordinary => Self { user: None, ..self },
            Class::Exempt => self,
        }
    }
}

impl Default for Peer {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self::at(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        })
    }
}

/// Tells users apart, and knows which of them shares do not limit. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Users(Arc<KnownUsers>);

#[derive(Debug, Default)]
struct KnownUsers {
    /// Keyed at random in each process.
    hasher: RandomState,
    exempt_users: HashSet<String>,
    exempt_groups: HashSet<String>,
}

impl Users {
    /// With users and groups whom shares do not limit.
    #[must_use]
    pub fn new(
        exempt_users: impl IntoIterator<Item = String>,
        exempt_groups: impl IntoIterator<Item = String>,
    ) -> Self {
        Self(Arc::new(KnownUsers {
            hasher: RandomState::new(),
            exempt_users: exempt_users.into_iter().collect(),
            exempt_groups: exempt_groups.into_iter().collect(),
        }))
    }

    /// The peer, now that it is known whose requests it sends. Of an impersonating caller this is the one who impersonates: nobody
    /// takes a share that is another one's.
    #[must_use]
    pub fn known(&self, peer: Peer, name: &str, groups: &[String]) -> Peer {
        let Self(known) = self;
        let is_exempt = known.exempt_users.contains(name)
            || groups
                .iter()
                .any(|group| known.exempt_groups.contains(group));
        Peer {
            user: Some(self.key("user", name.as_bytes())),
            class: if is_exempt {
                Class::Exempt
            } else {
                Class::Ordinary
            },
            ..peer
        }
    }

    /// The peer with a credential that only upstream looks at. Whoever has several of them has several shares, up to that of
    /// the address.
    #[must_use]
    pub fn bearing(&self, peer: Peer, credential: &[u8]) -> Peer {
        Peer {
            user: Some(self.key("credential", credential)),
            ..peer
        }
    }

    fn key(&self, kind: &str, text: &[u8]) -> UserKey {
        UserKey(self.0.hasher.hash_one((kind, text)))
    }
}

/// Which bound leaves a client no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Its user holds as many as one user may.
    User,
    /// Its address does.
    Address,
    /// None is free.
    Total,
}

type PeerCounts<K> = HashMap<K, usize, foldhash::fast::RandomState>;

/// How many of a number of places are taken, and by whom.
#[derive(Debug)]
pub struct Share {
    max: usize,
    taken: usize,
    /// Addresses that hold any.
    by_address: PeerCounts<IpAddr>,
    /// Users that hold any.
    by_user: PeerCounts<UserKey>,
}

impl Share {
    /// So many places, all free.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            taken: 0,
            by_address: HashMap::default(),
            by_user: HashMap::default(),
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
        self.room(peer, count).is_ok()
    }

    /// Why the peer may not take one more, if it may not.
    #[must_use]
    pub fn shortage(&self, peer: Peer) -> Option<Shortage> {
        self.room(peer, 1).err()
    }

    /// Whether nobody of a [group](Peer::group) may take another one.
    #[must_use]
    pub fn is_closed_to(&self, group: Peer) -> bool {
        let free = self.max.saturating_sub(self.taken);
        let held = self.by_address.get(&group.address).copied().unwrap_or(0);
        let is_limited = group.class == Class::Ordinary;
        free == 0 || (is_limited && held >= free.saturating_mul(ADDRESS_FACTOR))
    }

    fn room(&self, peer: Peer, count: usize) -> Result<(), Shortage> {
        let Some(others) = count.checked_sub(1) else {
            return Ok(());
        };
        // The last one has the least room.
        let free = self.max.saturating_sub(self.taken).saturating_sub(others);
        if free == 0 {
            return Err(Shortage::Total);
        }
        if peer.class == Class::Exempt {
            return Ok(());
        }
        let fits = |held: Option<&usize>, factor| {
            let held = held.copied().unwrap_or(0);
            held.saturating_add(others) < free.saturating_mul(factor)
        };
        let at_address = self.by_address.get(&peer.address);
        match peer.user {
            None if fits(at_address, SHARE_FACTOR) => Ok(()),
            Some(_) if !fits(at_address, ADDRESS_FACTOR) => Err(Shortage::Address),
            Some(user) if fits(self.by_user.get(&user), SHARE_FACTOR) => Ok(()),
            Some(_) => Err(Shortage::User),
            None => Err(Shortage::Address),
        }
    }

    /// Takes one place for the peer.
    pub fn take(&mut self, peer: Peer) {
        self.take_many(peer, 1);
    }

    /// Takes `count` places for the peer, whether there is room or not.
    pub fn take_many(&mut self, peer: Peer, count: usize) {
        if count == 0 {
            return;
        }
        self.taken += count;
        // What is exempt is nobody's share: those who share an address or a name with it lose nothing.
        if peer.class == Class::Ordinary {
            *self.by_address.entry(peer.address).or_insert(0) += count;
            if let Some(user) = peer.user {
                *self.by_user.entry(user).or_insert(0) += count;
            }
        }
    }

    /// Gives back one place that the peer took.
    pub fn give_back(&mut self, peer: Peer) {
        self.give_back_many(peer, 1);
    }

    /// Gives back `count` places that the peer took.
    pub fn give_back_many(&mut self, peer: Peer, count: usize) {
        self.taken -= count;
        if peer.class == Class::Ordinary {
            give_back(&mut self.by_address, &peer.address, count);
            if let Some(user) = &peer.user {
                give_back(&mut self.by_user, user, count);
            }
        }
    }
}

fn give_back<K: Eq + std::hash::Hash>(counts: &mut PeerCounts<K>, key: &K, count: usize) {
    if let Some(held) = counts.get_mut(key) {
        *held -= count;
        if *held == 0 {
            counts.remove(key);
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
        self.acquire(peer).ok()
    }

    /// The same.
    ///
    /// # Errors
    /// What does not allow it.
    pub fn acquire(&self, peer: Peer) -> Result<Permit, Shortage> {
        let mut share = self.share();
        share.room(peer, 1)?;
        share.take(peer);
        Ok(Permit {
            permits: self.clone(),
            peer,
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
