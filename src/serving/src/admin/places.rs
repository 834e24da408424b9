//! Who may stay connected to the admin port. A newcomer is always admitted: when all places are taken, it gets the place of a connection
//! that receives no page of metrics, so that probes are answered however many clients and addresses sit there. Pages are long and can be
//! read slowly, so they have a bound of their own, lower than that of places.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::fairness::{Peer, Share, Shortage};

/// Enough that a probe has sent its head before as many newcomers have come.
pub(super) const PLACES_MAX: usize = 64;
/// Enough for two scrapers and some people. The other places are never held by slow readers.
pub(super) const PAGES_MAX: usize = 8;
/// After this time, Prometheus' default for a whole scrape, a page that is still being read gives way to another one.
pub(super) const PAGE_TIME_MIN: Duration = Duration::from_secs(10);

/// The places of one port. Clones share them.
#[derive(Clone)]
pub(super) struct PlaceAllocator(Arc<Mutex<PlaceTable>>);

struct PlaceTable {
    /// By the order of their arrival.
    taken: BTreeMap<u64, PlaceOccupant>,
    next: u64,
    pages: Share,
}

struct PlaceOccupant {
    peer: Peer,
    page_since: Option<Instant>,
    /// Closes the connection when it is dropped.
    _closer: oneshot::Sender<Infallible>,
}

impl PlaceAllocator {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(PlaceTable {
            taken: BTreeMap::new(),
            next: 0,
            pages: Share::new(PAGES_MAX),
        })))
    }

    /// A place for a connection of this peer, if need be that of another one.
    pub(super) fn admit(&self, peer: Peer) -> PlaceGuard {
        let mut table = self.0.lock();
        if table.taken.len() >= PLACES_MAX
            && let Some(oldest) = table.displaceable(peer)
        {
            table.remove(oldest);
        }
        let id = table.next;
        table.next += 1;
        let (closer, closed) = oneshot::channel();
        let place = PlaceOccupant {
            peer,
            page_since: None,
            _closer: closer,
        };
        table.taken.insert(id, place);
        PlaceGuard {
            closed,
            key: PlaceKey {
                places: self.clone(),
                id,
            },
        }
    }
}

impl PlaceTable {
    /// The oldest connection without a page of the address that has the most of them, the newcomer counted.
    fn displaceable(&self, newcomer: Peer) -> Option<u64> {
        let mut counts = HashMap::<Peer, usize, foldhash::fast::RandomState>::default();
        counts.insert(newcomer, 1);
        let idle = || self.taken.iter().filter(|(_, at)| at.page_since.is_none());
        for (_, place) in idle() {
            *counts.entry(place.peer).or_insert(0) += 1;
        }
        let most = idle().map(|(_, place)| counts.get(&place.peer)).max()?;
        let oldest = idle().find(|(_, place)| counts.get(&place.peer) == most);
        oldest.map(|(id, _)| *id)
    }

    fn remove(&mut self, id: u64) {
        if let Some(place) = self.taken.remove(&id)
            && place.page_since.is_some()
        {
            self.pages.give_back(place.peer);
        }
    }

    /// Whether the connection may have a page now. One that has been read for long enough gives way to it: of the same address, if that
    /// has too many.
    fn begin_page(&mut self, id: u64, now: Instant) -> bool {
        let Some(peer) = self.taken.get(&id).map(|place| place.peer) else {
            return false;
        };
        if let Some(shortage) = self.pages.shortage(peer) {
            let gives_way = |at: &PlaceOccupant| {
                let is_old = |since| now.saturating_duration_since(since) >= PAGE_TIME_MIN;
                at.page_since.is_some_and(is_old)
                    && (shortage == Shortage::Total || at.peer == peer)
            };
            let old = self.taken.iter().filter(|(_, at)| gives_way(at));
            let Some((&oldest, _)) = old.min_by_key(|(_, at)| at.page_since) else {
                return false;
            };
            self.remove(oldest);
        }
        if !self.pages.has_room_for(peer) {
            return false;
        }
        if let Some(place) = self.taken.get_mut(&id)
            && place.page_since.is_none()
        {
            place.page_since = Some(now);
            self.pages.take(peer);
        }
        true
    }
}

/// A connection's place. It is free again when this is dropped.
pub(super) struct PlaceGuard {
    /// Done when the place was given to another connection.
    pub(super) closed: oneshot::Receiver<Infallible>,
    pub(super) key: PlaceKey,
}

/// Names a place, and frees it when dropped.
pub(super) struct PlaceKey {
    places: PlaceAllocator,
    id: u64,
}

impl PlaceKey {
    /// Whether the connection may have a page of metrics. It then keeps its place until it ends, or for [`PAGE_TIME_MIN`].
    pub(super) fn begin_page(&self, now: Instant) -> bool {
        self.places.0.lock().begin_page(self.id, now)
    }
}

impl Drop for PlaceKey {
    fn drop(&mut self) {
        self.places.0.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(last: usize) -> Peer {
        IpAddr::from(Ipv4Addr::new(10, 0, 0, u8::try_from(last).unwrap())).into()
    }

    fn is_open(place: &mut PlaceGuard) -> bool {
        place.closed.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    #[tokio::test]
    async fn a_newcomer_gets_the_oldest_place_of_who_has_the_most() {
        let places = PlaceAllocator::new();
        let mut probe = places.admit(peer(1));
        let mut greedy: Vec<_> = (1..PLACES_MAX).map(|_| places.admit(peer(2))).collect();
        let mut newcomer = places.admit(peer(3));
        assert!(!is_open(&mut greedy[0]) && is_open(&mut greedy[1]));
        // Who has the most displaces only itself.
        let mut again = places.admit(peer(2));
        assert!(!is_open(&mut greedy[1]) && is_open(&mut greedy[2]));
        assert!(is_open(&mut probe) && is_open(&mut newcomer) && is_open(&mut again));
        drop(greedy);
        // Nobody is displaced while there is room.
        let mut others: Vec<_> = (10..30).map(|last| places.admit(peer(last))).collect();
        assert!(others.iter_mut().all(is_open) && is_open(&mut probe));
    }

    #[tokio::test]
    async fn a_probe_keeps_its_place_while_as_many_others_come() {
        let places = PlaceAllocator::new();
        let _sitting: Vec<_> = (100..100 + PLACES_MAX)
            .map(|at| places.admit(peer(at)))
            .collect();
        let mut probe = places.admit(peer(1));
        let rest: Vec<_> = (2..=PLACES_MAX)
            .map(|last| places.admit(peer(last)))
            .collect();
        assert!(is_open(&mut probe));
        drop(rest);
        assert!(is_open(&mut probe));
    }

    #[tokio::test]
    async fn a_page_under_way_is_displaced_only_by_a_page_and_only_when_it_is_old() {
        let (places, began) = (PlaceAllocator::new(), Instant::now());
        let mut pages: Vec<_> = (1..=PAGES_MAX)
            .map(|last| places.admit(peer(last)))
            .collect();
        assert!(pages.iter().all(|page| page.key.begin_page(began)));
        let crowd: Vec<_> = (0..3 * PLACES_MAX)
            .map(|at| places.admit(peer(20 + at)))
            .collect();
        assert!(pages.iter_mut().all(is_open));

        let scraper = places.admit(peer(9));
        let early = began + PAGE_TIME_MIN - Duration::from_millis(1);
        assert!(!scraper.key.begin_page(early));
        assert!(pages.iter_mut().all(is_open));
        assert!(scraper.key.begin_page(began + PAGE_TIME_MIN));
        assert_eq!(
            pages.iter_mut().map(is_open).filter(|open| !open).count(),
            1
        );

        drop((pages, crowd));
        let next = places.admit(peer(10));
        assert!(next.key.begin_page(early));
    }

    #[tokio::test]
    async fn one_address_has_a_share_of_the_pages() {
        let (places, now) = (PlaceAllocator::new(), Instant::now());
        let greedy: Vec<_> = (0..PAGES_MAX).map(|_| places.admit(peer(1))).collect();
        let granted = greedy.iter().filter(|page| page.key.begin_page(now));
        assert!((1..PAGES_MAX).contains(&granted.count()));
        assert!(places.admit(peer(2)).key.begin_page(now));
        assert_eq!(places.0.lock().taken.len(), PAGES_MAX);
        drop(greedy);
        let table = places.0.lock();
        assert_eq!((table.taken.len(), table.pages.taken()), (0, 0));
    }
}
