//! The controller: it keeps a ConfigMap with the ready endpoints of each labelled service, and none for other services.
//!
//! It is level-triggered: handlers say which service has changed, never how. [`Mirror::reconcile`] reads the present state from the
//! local stores, compares it with the desired state, and writes the difference. It may run too often, and after any number of missed
//! events. Its view may be stale for a moment, because its own writes take time to reach the local stores; the server then
//! rejects the write by its version, and the key is retried.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_fanout_informer::client::Client;
use kube_fanout_informer::resource::ObjectKey;
use kube_fanout_informer::{
    Cached, EventHandler, ListWatch, Notification, SharedInformer, SharedInformerFactory, index_by,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::requests::send;
use crate::work_queue::WorkQueue;

/// Services with this label are mirrored.
pub(crate) const WANTED: &str = "example.kube-fanout.dev/mirror-endpoints";
/// This label of a copy holds the name of its service. Only ConfigMaps with this label are managed.
pub(crate) const COPY_OF: &str = "example.kube-fanout.dev/endpoints-of";
/// Kubernetes' own label of a slice, which holds the name of its service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The key of a copy's only entry in `data`.
const ENTRY: &str = "endpoints";

/// Name of the index that finds slices by `namespace/service`.
const BY_SERVICE: &str = "service";
/// Two workers, so that one slow write does not delay everything.
const WORKER_COUNT: usize = 2;

/// The name of a service's copy.
pub(crate) fn copy_name(service: &str) -> String {
    format!("{service}-endpoints")
}

/// The content of a copy: address and port of each ready endpoint, sorted, one per line.
pub(crate) fn endpoints_of<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> String {
    let mut lines = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
        let ports: Vec<i32> = ports.collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            // The API says that an unknown condition means ready.
            let ready = conditions.and_then(|conditions| conditions.ready);
            if ready.unwrap_or(true) {
                let pairs = endpoint
                    .addresses
                    .iter()
                    .flat_map(|address| ports.iter().map(move |port| format!("{address}:{port}")));
                lines.extend(pairs);
            }
        }
    }
    lines.sort_unstable();
    lines.dedup();
    lines.join("\n")
}

/// What reconciling a service wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Unchanged,
    Created,
    Updated,
    Deleted,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        })
    }
}

pub(crate) struct Mirror {
    client: Arc<Client>,
    services: SharedInformer<Service>,
    slices: SharedInformer<EndpointSlice>,
    copies: SharedInformer<ConfigMap>,
    queue: Arc<WorkQueue>,
}

/// The service that `label` of an object names, in the object's namespace.
fn named_by_label<T>(object: &Cached<T>, label: &str) -> Option<ObjectKey> {
    let service = object.label(label)?;
    Some(ObjectKey::new(object.key().namespace(), service))
}

impl Mirror {
    /// Registers handlers with the informers of `factory`. The caller starts the factory.
    pub(crate) fn new(
        client: Arc<Client>,
        factory: &SharedInformerFactory<Client>,
    ) -> anyhow::Result<Arc<Self>> {
        let wanted = format!("{WANTED}=true");
        let mirror = Arc::new(Self {
            client,
            services: factory.informer(ListWatch::of_kind().with_labels(&wanted)),
            slices: factory.informer(ListWatch::of_kind().with_labels(SERVICE_NAME)),
            copies: factory.informer(ListWatch::of_kind().with_labels(COPY_OF)),
            queue: Arc::default(),
        });
        let by_service = |slice: &Cached<EndpointSlice>| {
            named_by_label(slice, SERVICE_NAME).map(|service| service.to_string())
        };
        mirror.slices.add_index(BY_SERVICE, index_by(by_service))?;
        mirror
            .services
            .add_handler(mirror.enqueue(|service: &Cached<Service>| Some(service.key().clone())));
        mirror.slices.add_handler(
            mirror.enqueue(|slice: &Cached<EndpointSlice>| named_by_label(slice, SERVICE_NAME)),
        );
        mirror
            .copies
            .add_handler(mirror.enqueue(|copy: &Cached<ConfigMap>| named_by_label(copy, COPY_OF)));
        Ok(mirror)
    }

    /// A handler that queues the service of an object after any change of the object.
    fn enqueue<T: Send + Sync + 'static>(
        &self,
        service_of: impl Fn(&Cached<T>) -> Option<ObjectKey> + Send + Sync + 'static,
    ) -> impl EventHandler<T> {
        let queue = Arc::clone(&self.queue);
        move |change: &Notification<T>| {
            let (one, other) = match change {
                Notification::Added { object, .. } => (object, None),
                Notification::Deleted { old, object, .. } => (object, Some(old)),
                // The slice may have moved to another service; then both services are affected.
                Notification::Updated { old, new } => (new, Some(old)),
            };
            let services = [Some(one), other].into_iter().flatten();
            for service in services.filter_map(|object| service_of(object)) {
                queue.add(service);
            }
        }
    }

    /// Works until the queue is closed. The informers must have synced; otherwise copies would be deleted whose services are not
    /// in the local store yet.
    pub(crate) async fn work(
        self: Arc<Self>,
        told: impl Fn(&ObjectKey, &anyhow::Result<Outcome>) + Clone + Send + Sync + 'static,
    ) {
        let mut workers = JoinSet::new();
        for _ in 0..WORKER_COUNT {
            let (mirror, told) = (Arc::clone(&self), told.clone());
            workers.spawn(async move {
                while let Some(service) = mirror.queue.next().await {
                    let outcome = mirror.reconcile(&service).await;
                    told(&service, &outcome);
                    match outcome {
                        Ok(_) => mirror.queue.succeeded(&service),
                        Err(_) => mirror.queue.failed(&service),
                    }
                }
            });
        }
        while workers.join_next().await.is_some() {}
    }

    /// Closes the queue; workers finish the keys that they have taken.
    pub(crate) fn stop(&self) {
        self.queue.close();
    }

    /// Creates, updates or deletes one service's copy as needed.
    async fn reconcile(&self, service: &ObjectKey) -> anyhow::Result<Outcome> {
        let copy = ObjectKey::new(service.namespace(), &copy_name(service.name()));
        let there = self.copies.store().object(copy.as_str());
        let wanted = match self.services.store().object(service.as_str()) {
            Some(_) => Some(self.endpoints(service)?),
            None => None,
        };
        match (there, wanted) {
            (None, None) => Ok(Outcome::Unchanged),
            (Some(there), Some(endpoints)) if entry(&there) == Some(&endpoints) => {
                Ok(Outcome::Unchanged)
            }
            (None, Some(endpoints)) => {
                let path = format!("/api/v1/namespaces/{}/configmaps", service.namespace());
                let object = new_copy(&copy, service, &endpoints);
                self.write(Method::POST, &path, &object, Outcome::Created)
                    .await
            }
            (Some(there), Some(endpoints)) => {
                let mut object = new_copy(&copy, service, &endpoints);
                // The server rejects this if the copy has changed since.
                object["metadata"]["resourceVersion"] = there.resource_version().to_string().into();
                self.write(Method::PUT, &path_of(&copy), &object, Outcome::Updated)
                    .await
            }
            (Some(there), None) => {
                let only_this = json!({"preconditions": {"uid": there.uid()}});
                self.write(
                    Method::DELETE,
                    &path_of(&copy),
                    &only_this,
                    Outcome::Deleted,
                )
                .await
            }
        }
    }

    fn endpoints(&self, service: &ObjectKey) -> anyhow::Result<String> {
        let slices = self.slices.store().by_index(BY_SERVICE, service.as_str())?;
        Ok(endpoints_of(slices.iter().map(|slice| &***slice)))
    }

    async fn write(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        outcome: Outcome,
    ) -> anyhow::Result<Outcome> {
        let (status, answer) = send(&self.client, method, path, Some(body)).await?;
        if status.is_success() {
            return Ok(outcome);
        }
        if outcome == Outcome::Deleted && status == StatusCode::NOT_FOUND {
            return Ok(Outcome::Unchanged);
        }
        anyhow::bail!("{status}: {}", answer["message"])
    }
}

fn entry(copy: &ConfigMap) -> Option<&String> {
    let data: &BTreeMap<String, String> = copy.data.as_ref()?;
    (data.len() == 1).then(|| data.get(ENTRY)).flatten()
}

fn path_of(copy: &ObjectKey) -> String {
    format!(
        "/api/v1/namespaces/{}/configmaps/{}",
        copy.namespace(),
        copy.name()
    )
}

fn new_copy(copy: &ObjectKey, service: &ObjectKey, endpoints: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": copy.name(),
            "namespace": copy.namespace(),
            "labels": {COPY_OF: service.name()},
        },
        "data": {ENTRY: endpoints},
    })
}
