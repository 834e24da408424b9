//! kube-rs's reflector as in its documentation: a watcher with streaming lists and the default back-off, into a store.

use std::fmt::Debug;
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Lookup, reflector};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{HandlerProgress, InformerHandle};

pub async fn typed(kubeconfig: &Path) -> Result<InformerHandle> {
    let api = Api::<Pod>::all(client(kubeconfig).await?);
    Ok(reflect(watched(api), ()))
}

/// The same without managed fields.
pub async fn typed_bare(kubeconfig: &Path) -> Result<InformerHandle> {
    let api = Api::<Pod>::all(client(kubeconfig).await?);
    let bare = watched(api).modify(|pod| pod.managed_fields_mut().clear());
    Ok(reflect(bare, ()))
}

/// Pods as dynamic objects.
pub async fn dynamic(kubeconfig: &Path) -> Result<InformerHandle> {
    dynamic_of(kubeconfig, ApiResource::erase::<Pod>(&())).await
}

/// Any resource as dynamic objects.
pub async fn dynamic_of(kubeconfig: &Path, resource: ApiResource) -> Result<InformerHandle> {
    let api = Api::<DynamicObject>::all_with(client(kubeconfig).await?, &resource);
    Ok(reflect(watched(api), resource))
}

/// The metadata of pods.
pub async fn metadata(kubeconfig: &Path) -> Result<InformerHandle> {
    let api = Api::<PartialObjectMeta<Pod>>::all(client(kubeconfig).await?);
    Ok(reflect(watched(api), ()))
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    // kube uses the process's default provider if there are two.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn watched<K>(api: Api<K>) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, Config::default().streaming_lists())
}

fn reflect<K>(
    watched: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    kind: <K as Lookup>::DynamicType,
) -> InformerHandle
where
    K: Lookup + Resource + Clone + Send + Sync + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let writer = Writer::<K>::new(kind);
    let store = writer.as_reader();
    let seen = Arc::new(HandlerProgress::default());
    let counted = Arc::clone(&seen);
    let lists_started = Arc::new(AtomicU64::new(0));
    let lists = Arc::clone(&lists_started);
    let events = reflector(writer, watched.default_backoff());
    let task = tokio::spawn(events.for_each(move |event| {
        match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => {
                let version = object.resource_version().and_then(|text| text.parse().ok());
                counted.change(version.unwrap_or(0));
            }
            // Relaxed: readers only want the number.
            Ok(Event::Init) => _ = lists_started.fetch_add(1, Ordering::Relaxed),
            Ok(Event::InitApply(_) | Event::InitDone) => {}
            Err(error) => eprintln!("kube-rs: {error}"),
        }
        futures::future::ready(())
    }));
    let (ready, listed, counted) = (store.clone(), store.clone(), store);
    InformerHandle {
        seen,
        synced: Box::pin(async move { ready.wait_until_ready().await.context("kube-rs's store") }),
        lines: Box::new(move || {
            listed
                .state()
                .iter()
                .map(|object| line(&**object))
                .collect()
        }),
        len: Box::new(move || counted.len()),
        lists: Box::new(move || lists.load(Ordering::Relaxed)),
        end: Box::pin(async move { task.abort() }),
    }
}

fn line(object: &impl ResourceExt) -> String {
    format!(
        "{}/{}/{}\n",
        object.namespace().unwrap_or_default(),
        object.name_any(),
        object.resource_version().unwrap_or_default()
    )
}
