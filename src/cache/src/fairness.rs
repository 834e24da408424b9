//! Bounded numbers of permits, shared among clients so that no client takes all of them. Knows neither requests nor clocks.
//!
//! A client may hold up to `SHARE_FACTOR` times as many permits as are free (the dynamic threshold of shared switch buffers, Choudhury and
//! Hahne 1998). A single client gets four fifths of all permits; a new client finds a free one, however many clients there are.
//!
//! A client is an address until its user is known. Then its permits count as the user's, and for the address with a larger factor: users
//! behind one address do not lock each other out, and an address with many users does not get everything
//! (`docs/decisions/0017-admission.md`). [`Share`] counts, [`Permits`] is a share for many tasks, which takes permits back from clients
//! that hold many, and [`fair_queue`] adds a queue.

pub mod fair_queue;
mod permits;
pub mod queued_permits;
mod reclaim;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hashbrown::HashMap;
use strum::{IntoStaticStr, VariantArray};

pub use permits::{Permit, Permits, Reclaim, Standing};
pub use reclaim::Activity;

/// How many permits a client may hold for each free one. Of four permits or fewer, a single client may hold all.
const SHARE_FACTOR: usize = 4;
/// The same for all known users behind one address together: a seventeenth of all permits stays free for other addresses.
const ADDRESS_FACTOR: usize = 16;

/// A client, as far as it is known. All hosts of one IPv6 /64 network count as one, because such addresses cost their owner nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    address: IpAddr,
    user: Option<UserKey>,
    class: Class,
    is_operator: bool,
}

/// A keyed hash of a user or a token: a client cannot create two users, or two tokens, with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct UserKey(u64);

/// Which limits apply to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    Ordinary,
    /// Only the total of all clients; no share.
    Exempt,
}

impl Peer {
    /// All clients whose address is unknown.
    pub const UNKNOWN: Self = Self::at(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

    const fn at(address: IpAddr) -> Self {
        Self {
            address,
            user: None,
            class: Class::Ordinary,
            is_operator: false,
        }
    }

    /// Marks the peer as a client of the operators' port.
    #[must_use]
    pub const fn operator(self) -> Self {
        Self {
            is_operator: true,
            ..self
        }
    }

    /// Whether it is a client of the operators' port, which has limits of its own.
    #[must_use]
    pub const fn is_operator(self) -> bool {
        self.is_operator
    }

    /// The group whose permits are counted together with this peer's: its address, unless the peer is exempt from shares.
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

/// Identifies users, and knows which of them are exempt from shares. Clones share one key.
#[derive(Clone, Debug, Default)]
pub struct Users(Arc<KnownUsers>);

#[derive(Debug, Default)]
struct KnownUsers {
    /// With a random key per process.
    hasher: RandomState,
    exempt_users: HashSet<String>,
    exempt_groups: HashSet<String>,
}

impl Users {
    /// With the users and groups that are exempt from shares.
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

    /// The peer with its user's name and groups. For an impersonated request, the user is the impersonating one: a client cannot use up
    /// another user's share.
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

    /// The peer with a credential that only upstream can check. A client with several credentials has several shares, up to the share of
    /// its address.
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

/// Which limit leaves a client no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Shortage {
    /// The user holds as many as one user may.
    User,
    /// The address holds as many as one address may.
    Address,
    /// No permit is free.
    Total,
}

type PeerCounts<K> = HashMap<K, usize, foldhash::fast::RandomState>;

/// How many permits are in use, in total and by client.
#[derive(Debug)]
pub struct Share {
    max: usize,
    taken: usize,
    /// Counts of the addresses that hold any.
    by_address: PeerCounts<IpAddr>,
    /// Counts of the users that hold any.
    by_user: PeerCounts<UserKey>,
    /// The count of all exempt peers together.
    exempt: usize,
}

impl Share {
    /// With `max` permits, all of them free.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            taken: 0,
            by_address: HashMap::default(),
            by_user: HashMap::default(),
            exempt: 0,
        }
    }

    /// Changes the number of permits. Those in use beyond it stay valid.
    pub const fn resize(&mut self, max: usize) {
        self.max = max;
    }

    /// Permits in use.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Whether no permit is free.
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

    /// Which limit keeps the peer from taking one more, if one does.
    #[must_use]
    pub fn shortage(&self, peer: Peer) -> Option<Shortage> {
        self.room(peer, 1).err()
    }

    /// Whether no peer of a [group](Peer::group) may take another one.
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
        // The last of `count` permits finds the fewest free ones.
        let free = self.max.saturating_sub(self.taken).saturating_sub(others);
        self.room_among(peer, others, free)
    }

    /// Whether the peer would have room if another peer gave one permit back. For this, exempt peers have a share together.
    fn would_have_room(&self, peer: Peer) -> bool {
        let free = self.max.saturating_add(1).saturating_sub(self.taken);
        let is_modest = peer.class == Class::Ordinary || self.exempt < free * SHARE_FACTOR;
        is_modest && self.room_among(peer, 0, free).is_ok()
    }

    /// How many permits the peer's address and its user hold.
    fn held_by(&self, peer: Peer) -> (usize, usize) {
        if peer.class == Class::Exempt {
            return (self.exempt, self.exempt);
        }
        let at_address = self.by_address.get(&peer.address);
        let of_user = peer.user.and_then(|user| self.by_user.get(&user));
        (
            at_address.copied().unwrap_or(0),
            of_user.copied().unwrap_or(0),
        )
    }

    fn room_among(&self, peer: Peer, others: usize, free: usize) -> Result<(), Shortage> {
        if free == 0 {
            return Err(Shortage::Total);
        }
        if peer.class == Class::Exempt {
            return Ok(());
        }
        let fits = |held: Option<&usize>, factor| {
            held.copied().unwrap_or(0).saturating_add(others) < free.saturating_mul(factor)
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

    /// Takes one permit for the peer.
    pub fn take(&mut self, peer: Peer) {
        self.take_many(peer, 1);
    }

    /// Takes `count` permits for the peer, whether there is room or not.
    pub fn take_many(&mut self, peer: Peer, count: usize) {
        if count == 0 {
            return;
        }
        self.taken += count;
        // Exempt permits count for no share, so other clients at the same address, or with the same name, lose nothing.
        if peer.class == Class::Exempt {
            self.exempt += count;
            return;
        }
        *self.by_address.entry(peer.address).or_insert(0) += count;
        if let Some(user) = peer.user {
            *self.by_user.entry(user).or_insert(0) += count;
        }
    }

    /// Gives back one permit that the peer took.
    pub fn give_back(&mut self, peer: Peer) {
        self.give_back_many(peer, 1);
    }

    /// Gives back `count` permits that the peer took.
    pub fn give_back_many(&mut self, peer: Peer, count: usize) {
        self.taken -= count;
        if peer.class == Class::Exempt {
            self.exempt -= count;
            return;
        }
        give_back(&mut self.by_address, &peer.address, count);
        if let Some(user) = &peer.user {
            give_back(&mut self.by_user, user, count);
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

#[cfg(test)]
mod tests;
