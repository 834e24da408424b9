//! This project's informer, with one handler that notes changes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use kube_fanout::informer::{Cached, EventHandler, ListWatch, SharedInformer};
use kube_fanout::upstream::client::{Client, ConnectSource};

use super::{Informer, Silence};

struct Changes(Arc<Silence>);

impl<T: Send + Sync + 'static> EventHandler<T> for Changes {
    fn on_add(&self, _object: &Arc<Cached<T>>, in_initial_list: bool) {
        if !in_initial_list {
            self.0.change();
        }
    }

    fn on_update(&self, _old: &Arc<Cached<T>>, _new: &Arc<Cached<T>>) {
        self.0.change();
    }

    fn on_delete(&self, _object: &Arc<Cached<T>>, _final_state_known: bool) {
        self.0.change();
    }
}

pub async fn start<T: Send + Sync + 'static>(
    kubeconfig: &Path,
    list_watch: ListWatch<T>,
) -> Result<Informer> {
    let source = ConnectSource::Kubeconfig {
        path: kubeconfig.to_owned(),
        context: None,
    };
    let client = Client::connect(source).await?;
    let informer = SharedInformer::new(Arc::new(client), list_watch);
    let silence = Arc::<Silence>::default();
    informer.add_handler(Changes(Arc::clone(&silence)));
    informer.start();
    let (ready, listed) = (informer.clone(), informer.clone());
    Ok(Informer {
        silence,
        synced: Box::pin(async move { Ok(ready.synced().await?) }),
        lines: Box::new(move || listed.store().snapshot().iter().map(line).collect()),
        lists: Box::new(move || informer.counts().lists()),
    })
}

fn line<T>(object: &Arc<Cached<T>>) -> String {
    let (key, version) = (object.key(), object.resource_version());
    format!("{}/{}/{version}\n", key.namespace(), key.name())
}
