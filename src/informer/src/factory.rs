//! A factory that shares informers: one per collection, way of reading it, and type of its objects.

use std::any::{Any, TypeId};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use super::list_watch::ReadOptions;
use super::shared_informer::{InformerOptions, SharedInformer};
use super::{ListWatch, NotSynced};
use crate::upstream::driver::Fetch;

/// Identifies an informer: two requests with equal keys share one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InformerKey {
    read: ReadOptions,
    form: TypeId,
}

type Done<'a, R> = Pin<Box<dyn Future<Output = R> + Send + 'a>>;

/// An informer of objects of any type.
trait AnyInformer: Send + Sync {
    fn start(&self);
    fn is_started(&self) -> bool;
    fn synced(&self) -> Done<'_, Result<(), NotSynced>>;
    fn stop_reading(&self);
    fn shutdown(&self) -> Done<'_, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Send + Sync + 'static> AnyInformer for SharedInformer<T> {
    fn start(&self) {
        Self::start(self);
    }

    fn is_started(&self) -> bool {
        Self::is_started(self)
    }

    fn synced(&self) -> Done<'_, Result<(), NotSynced>> {
        Box::pin(Self::synced(self))
    }

    fn stop_reading(&self) {
        Self::stop_reading(self);
    }

    fn shutdown(&self) -> Done<'_, ()> {
        Box::pin(Self::shutdown(self))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Default)]
struct FactoryMembers {
    informers: Vec<(InformerKey, Arc<dyn AnyInformer>)>,
    is_shut_down: bool,
}

/// Creates and shares informers; starts them and shuts them down together (client-go's `SharedInformerFactory`).
pub struct SharedInformerFactory<F> {
    fetch: Arc<F>,
    members: Mutex<FactoryMembers>,
}

impl<F: Fetch> SharedInformerFactory<F> {
    /// A factory whose informers send their requests through `fetch`.
    #[must_use]
    pub fn new(fetch: Arc<F>) -> Self {
        Self {
            fetch,
            members: Mutex::default(),
        }
    }

    /// Returns the informer of this collection, way of reading it, and type of its objects. The first call creates it, without
    /// starting it. After [`SharedInformerFactory::shutdown`] a new informer has already ended.
    pub fn informer<T: Send + Sync + 'static>(
        &self,
        list_watch: ListWatch<T>,
    ) -> SharedInformer<T> {
        self.informer_with(list_watch, InformerOptions::default())
    }

    /// Returns the same informer as [`SharedInformerFactory::informer`]. `options` apply only if this call creates it.
    pub fn informer_with<T: Send + Sync + 'static>(
        &self,
        list_watch: ListWatch<T>,
        options: InformerOptions<T>,
    ) -> SharedInformer<T> {
        let key = InformerKey {
            read: list_watch.read.clone(),
            form: TypeId::of::<T>(),
        };
        let mut members = self.members();
        let found = members
            .informers
            .iter()
            .find(|(known, _)| *known == key)
            .and_then(|(_, informer)| informer.as_any().downcast_ref::<SharedInformer<T>>());
        if let Some(informer) = found {
            return informer.clone();
        }
        let informer = SharedInformer::with_options(Arc::clone(&self.fetch), list_watch, options);
        if members.is_shut_down {
            drop(members);
            informer.end_unstarted();
            return informer;
        }
        members.informers.push((key, Arc::new(informer.clone())));
        informer
    }

    /// Starts all informers that were not started yet; call it again after requesting more. Does nothing after
    /// [`SharedInformerFactory::shutdown`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, if there is an informer to start.
    pub fn start(&self) {
        if self.members().is_shut_down {
            return;
        }
        for informer in self.all() {
            informer.start();
        }
    }

    /// Waits until every informer that was started holds its initial list.
    ///
    /// # Errors
    /// An informer was shut down before; the error names its collection.
    pub async fn wait_for_cache_sync(&self) -> Result<(), NotSynced> {
        for informer in self.all() {
            if informer.is_started() {
                informer.synced().await?;
            }
        }
        Ok(())
    }

    /// Shuts down all informers at the same time, and waits until their tasks have ended and all callbacks have returned. A handler
    /// that does not return delays only this call, not the end of the other informers. Safe to cancel.
    pub async fn shutdown(&self) {
        self.members().is_shut_down = true;
        let all = self.all();
        for informer in &all {
            informer.stop_reading();
        }
        let shutdowns = all
            .into_iter()
            .map(|informer| async move { informer.shutdown().await });
        let mut shutdowns: JoinSet<()> = shutdowns.collect();
        while shutdowns.join_next().await.is_some() {}
    }

    fn all(&self) -> Vec<Arc<dyn AnyInformer>> {
        let members = self.members();
        members
            .informers
            .iter()
            .map(|(_, informer)| Arc::clone(informer))
            .collect()
    }

    fn members(&self) -> MutexGuard<'_, FactoryMembers> {
        self.members.lock()
    }
}

impl<F> fmt::Debug for SharedInformerFactory<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.lock();
        f.debug_struct("SharedInformerFactory")
            .field("informers", &members.informers.len())
            .field("is_shut_down", &members.is_shut_down)
            .finish_non_exhaustive()
    }
}
