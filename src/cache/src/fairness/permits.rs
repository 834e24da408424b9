//! Permits that many tasks take from one [`Share`], and that a client which has few gets back from one which has many.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::reclaim::{Activity, HolderTable};
use super::{Peer, Share, Shortage};

/// A [`Share`] from which many tasks take permits. Clones share it.
#[derive(Clone, Debug)]
pub struct Permits(Arc<Mutex<PermitTable>>);

#[derive(Debug)]
struct PermitTable {
    share: Share,
    /// Those that can be taken back.
    holders: HolderTable,
}

impl Permits {
    /// Permits for at most `max` holders at a time.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(PermitTable {
            share: Share::new(max),
            holders: HolderTable::default(),
        })))
    }

    /// A permit for the peer, if its share and the whole allow one.
    #[must_use]
    pub fn try_acquire(&self, peer: Peer) -> Option<Permit> {
        self.acquire(peer).ok()
    }

    /// A permit for the peer, if its share and the total allow one, or if another peer that has more can give one back.
    ///
    /// # Errors
    /// The limit that does not allow it.
    pub fn acquire(&self, peer: Peer) -> Result<Permit, Shortage> {
        let mut table = self.table();
        let victim = match table.share.shortage(peer) {
            None => None,
            Some(shortage) => Some(table.take_back(peer, shortage).ok_or(shortage)?),
        };
        table.share.take(peer);
        drop(table);
        if let Some(victim) = victim {
            // Whoever has just given the permit back by itself need not be told.
            let _ = victim.send(());
        }
        Ok(Permit {
            permits: self.clone(),
            peer,
            holder: None,
        })
    }

    /// Lowers the number of permits to `max`. Permits beyond it stay valid until they are dropped.
    pub fn lower(&self, max: usize) {
        let mut table = self.table();
        table.share.max = table.share.max.min(max);
    }

    /// Changes the number of permits to `max`. Permits beyond it stay valid until they are dropped.
    pub fn resize(&self, max: usize) {
        self.table().share.resize(max);
    }

    /// The number of permits that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.table().share.taken()
    }

    fn table(&self) -> MutexGuard<'_, PermitTable> {
        // A panic leaves the share consistent: its methods do not panic halfway.
        self.0.lock()
    }
}

impl PermitTable {
    /// Takes back the permit of a peer that has more than the newcomer; returns how to tell its holder.
    fn take_back(&mut self, newcomer: Peer, shortage: Shortage) -> Option<oneshot::Sender<()>> {
        if !self.share.would_have_room(newcomer) {
            return None;
        }
        let (peer, victim) = self.holders.take_back(newcomer, shortage, &self.share)?;
        self.share.give_back(peer);
        Some(victim)
    }
}

/// One of [`Permits`], released when dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    peer: Peer,
    /// Its number among those that can be taken back.
    holder: Option<u64>,
}

impl Permit {
    /// From now on the permit can be taken back, for a peer that has fewer. The holder must then let go at once.
    pub fn reclaimable(&mut self) -> Reclaim {
        let (sender, taken_back) = oneshot::channel();
        if self.holder.is_none() {
            let mut table = self.permits.table();
            self.holder = Some(table.holders.insert(self.peer, sender));
        }
        Reclaim {
            receiver: Some(taken_back),
            is_taken_back: false,
        }
    }

    /// A handle with which the holder tells what it does.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            permits: self.permits.clone(),
            holder: self.holder,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut table = self.permits.table();
        let was_taken_back = match self.holder {
            Some(holder) => !table.holders.remove(holder),
            None => false,
        };
        if !was_taken_back {
            table.share.give_back(self.peer);
        }
    }
}

/// Completes when the permit was taken back, and may be polled again. Without this, the permit is not taken back any more.
#[derive(Debug)]
pub struct Reclaim {
    /// `None` once the permit was taken back or released.
    receiver: Option<oneshot::Receiver<()>>,
    is_taken_back: bool,
}

impl Reclaim {
    /// Whether the permit was taken back.
    pub fn is_taken_back(&mut self) -> bool {
        let result = self.receiver.as_mut().map(oneshot::Receiver::try_recv);
        if matches!(result, Some(Ok(()) | Err(TryRecvError::Closed))) {
            self.receiver = None;
            self.is_taken_back = result == Some(Ok(()));
        }
        self.is_taken_back
    }
}

impl Future for Reclaim {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(receiver) = &mut self.receiver {
            let taken_back = ready!(Pin::new(receiver).poll(context));
            self.receiver = None;
            self.is_taken_back = taken_back.is_ok();
        }
        match self.is_taken_back {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// What the holder of a permit does: idle ones are taken back first.
#[derive(Clone, Debug)]
pub struct Standing {
    permits: Permits,
    holder: Option<u64>,
}

impl Standing {
    /// Notes what the holder does from now on.
    pub fn set(&self, activity: Activity) {
        if let Some(holder) = self.holder {
            self.permits.table().holders.set_activity(holder, activity);
        }
    }
}
