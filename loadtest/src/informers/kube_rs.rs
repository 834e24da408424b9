//! kube-rs's reflector as in its documentation: a watcher with streaming lists and the default back-off, into a store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::reflector::reflector;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use super::{Informer, Silence};

/// An informer of a resource, as dynamic objects.
pub async fn start(kubeconfig: &Path, resource: &ApiResource) -> Result<Informer> {
    // kube uses the process's default provider if there are two.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let api = Api::<DynamicObject>::all_with(Client::try_from(config)?, resource);
    let writer = Writer::new(resource.clone());
    let store = writer.as_reader();
    let silence = Arc::<Silence>::default();
    let lists_started = Arc::new(AtomicU64::new(0));
    let (noted, counted) = (Arc::clone(&silence), Arc::clone(&lists_started));
    let watched = watcher(api, Config::default().streaming_lists());
    let events = reflector(writer, watched.default_backoff());
    tokio::spawn(events.for_each(move |event| {
        match event {
            Ok(Event::Apply(_) | Event::Delete(_)) => noted.change(),
            // Relaxed: readers only want the number.
            Ok(Event::Init) => _ = counted.fetch_add(1, Ordering::Relaxed),
            Ok(Event::InitApply(_) | Event::InitDone) => {}
            Err(error) => eprintln!("kube-rs: {error}"),
        }
        futures::future::ready(())
    }));
    let ready = store.clone();
    Ok(Informer {
        silence,
        synced: Box::pin(async move { ready.wait_until_ready().await.context("kube-rs's store") }),
        lines: Box::new(move || store.state().iter().map(|object| line(object)).collect()),
        lists: Box::new(move || lists_started.load(Ordering::Relaxed)),
    })
}

fn line(object: &DynamicObject) -> String {
    format!(
        "{}/{}/{}\n",
        object.namespace().unwrap_or_default(),
        object.name_any(),
        object.resource_version().unwrap_or_default()
    )
}
