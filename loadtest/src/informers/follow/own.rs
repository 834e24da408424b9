//! This project's informer, with one handler that counts.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use kube_fanout::informer::{Cached, EventHandler, ListWatch, SharedInformer};
use kube_fanout::upstream::client::{Client, ConnectSource};

use super::{HandlerProgress, InformerHandle};

struct Counter(Arc<HandlerProgress>);

impl Counter {
    fn change<T>(&self, object: &Cached<T>) {
        self.0.change(object.resource_version().0);
    }
}

impl<T: Send + Sync + 'static> EventHandler<T> for Counter {
    fn on_add(&self, object: &Arc<Cached<T>>, in_initial_list: bool) {
        if !in_initial_list {
            self.change(object);
        }
    }

    fn on_update(&self, _old: &Arc<Cached<T>>, new: &Arc<Cached<T>>) {
        self.change(new);
    }

    fn on_delete(&self, object: &Arc<Cached<T>>, _final_state_known: bool) {
        self.change(object);
    }
}

pub async fn start<T: Send + Sync + 'static>(
    kubeconfig: &Path,
    list_watch: ListWatch<T>,
) -> Result<InformerHandle> {
    let source = ConnectSource::Kubeconfig {
        path: kubeconfig.to_owned(),
        context: None,
    };
    let client = Client::connect(source).await?;
    let informer = SharedInformer::new(Arc::new(client), list_watch);
    let seen = Arc::new(HandlerProgress::default());
    informer.add_handler(Counter(Arc::clone(&seen)));
    informer.start();
    let (ready, listed, counted) = (informer.clone(), informer.clone(), informer.clone());
    let lists = informer.clone();
    let line = |object: &Arc<Cached<T>>| {
        let (key, version) = (object.key(), object.resource_version());
        format!("{}/{}/{version}\n", key.namespace(), key.name())
    };
    Ok(InformerHandle {
        seen,
        synced: Box::pin(async move { Ok(ready.synced().await?) }),
        lines: Box::new(move || listed.store().snapshot().iter().map(line).collect()),
        len: Box::new(move || counted.store().len()),
        lists: Box::new(move || lists.counts().lists()),
        end: Box::pin(async move { informer.shutdown().await }),
    })
}
