//! Which permit is taken back for a newcomer: one of the address, or else of the user, that holds the most, so that in the end all who want
//! any have as many. The longest unused or idle holder gives way first, then the one that came last.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::net::IpAddr;

use hashbrown::HashMap;
use tokio::sync::oneshot;

use super::{Class, Peer, Share, Shortage, UserKey};

/// The holders whose permits can be taken back. Peers that are exempt from shares are not among them.
#[derive(Debug, Default)]
pub(super) struct HolderTable {
    holders: HashMap<u64, Holder, foldhash::fast::RandomState>,
    by_address: Ranking<IpAddr>,
    by_user: Ranking<UserKey>,
    /// Those that nothing was done with yet.
    unused: BTreeSet<Rank>,
    next_number: u64,
}

#[derive(Debug)]
struct Holder {
    peer: Peer,
    rank: Rank,
    /// Tells the holder that its permit was taken back; `None` once nobody listens.
    victim: Option<oneshot::Sender<()>>,
}

/// What a holder does with its permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Nothing yet.
    Unused,
    /// Nothing more for now.
    Idle,
    /// Something.
    Busy,
}

/// The order in which holders give way. `since` is the number of the arrival or of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    activity: Activity,
    since: u64,
    holder: u64,
}

/// Peers by the number of permits that can be taken back from them.
#[derive(Debug)]
struct Ranking<K> {
    members: HashMap<K, BTreeSet<Rank>, foldhash::fast::RandomState>,
    sizes: BTreeSet<(usize, K)>,
}

impl HolderTable {
    /// Enters a busy holder; returns its number.
    pub(super) fn insert(&mut self, peer: Peer, victim: oneshot::Sender<()>) -> u64 {
        let holder = self.number();
        let rank = Rank {
            activity: Activity::Busy,
            since: holder,
            holder,
        };
        let victim = (peer.class == Class::Ordinary).then_some(victim);
        if victim.is_some() {
            self.rank(peer, rank);
        }
        self.holders.insert(holder, Holder { peer, rank, victim });
        holder
    }

    /// Removes a holder; false if its permit was taken back.
    pub(super) fn remove(&mut self, holder: u64) -> bool {
        let Some(Holder { peer, rank, .. }) = self.holders.remove(&holder) else {
            return false;
        };
        self.unrank(peer, rank);
        true
    }

    pub(super) fn set_activity(&mut self, holder: u64, activity: Activity) {
        let since = self.number();
        let Some(found) = self.holders.get_mut(&holder) else {
            return;
        };
        if found.rank.activity == activity || found.victim.is_none() {
            return;
        }
        let (peer, before) = (found.peer, found.rank);
        found.rank = Rank {
            activity,
            since,
            holder,
        };
        let now = found.rank;
        self.unrank(peer, before);
        self.rank(peer, now);
    }

    /// Removes the holder that gives way to the newcomer, if one does; returns it and how to tell it.
    pub(super) fn take_back(
        &mut self,
        newcomer: Peer,
        shortage: Shortage,
        share: &Share,
    ) -> Option<(Peer, oneshot::Sender<()>)> {
        loop {
            let Rank { holder, .. } = self.victim(newcomer, shortage, share)?;
            let found = self.holders.get_mut(&holder)?;
            let (peer, rank) = (found.peer, found.rank);
            let victim = found.victim.take_if(|victim| !victim.is_closed());
            found.victim = None;
            self.unrank(peer, rank);
            if let Some(victim) = victim {
                self.holders.remove(&holder);
                return Some((peer, victim));
            }
        }
    }

    fn victim(&self, newcomer: Peer, shortage: Shortage, share: &Share) -> Option<Rank> {
        let (at_address, of_user) = share.held_by(newcomer);
        let by_user = || self.by_user.first_above(of_user + 1);
        // Who has as many as others displaces only itself, and who has none what was never used.
        let idle = || match at_address {
            0 => self.unused.first().copied(),
            _ => self.by_address.first_idle(&newcomer.address),
        };
        match shortage {
            Shortage::Total => self
                .by_address
                .first_above(at_address + 1)
                .or_else(by_user)
                .or_else(idle),
            Shortage::Address => by_user().or_else(idle),
            Shortage::User => None,
        }
    }

    fn rank(&mut self, peer: Peer, rank: Rank) {
        self.by_address.insert(peer.address, rank);
        if let Some(user) = peer.user {
            self.by_user.insert(user, rank);
        }
        if rank.activity == Activity::Unused {
            self.unused.insert(rank);
        }
    }

    fn unrank(&mut self, peer: Peer, rank: Rank) {
        self.by_address.remove(peer.address, rank);
        if let Some(user) = peer.user {
            self.by_user.remove(user, rank);
        }
        self.unused.remove(&rank);
    }

    const fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

impl<K> Default for Ranking<K> {
    fn default() -> Self {
        Self {
            members: HashMap::default(),
            sizes: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord + Hash> Ranking<K> {
    fn insert(&mut self, key: K, rank: Rank) {
        let members = self.members.entry(key).or_default();
        self.sizes.remove(&(members.len(), key));
        members.insert(rank);
        self.sizes.insert((members.len(), key));
    }

    fn remove(&mut self, key: K, rank: Rank) {
        let Some(members) = self.members.get_mut(&key) else {
            return;
        };
        self.sizes.remove(&(members.len(), key));
        members.remove(&rank);
        let len = members.len();
        if len == 0 {
            self.members.remove(&key);
        } else {
            self.sizes.insert((len, key));
        }
    }

    /// The holder that gives way among those of the peer that has the most, if that is more than `count`.
    fn first_above(&self, count: usize) -> Option<Rank> {
        let (_, key) = self.sizes.last().filter(|(len, _)| *len > count)?;
        let members = self.members.get(key)?;
        self.first_idle(key).or_else(|| members.last().copied())
    }

    fn first_idle(&self, key: &K) -> Option<Rank> {
        self.members
            .get(key)?
            .first()
            .filter(|rank| rank.activity < Activity::Busy)
            .copied()
    }
}

#[cfg(test)]
mod tests;
