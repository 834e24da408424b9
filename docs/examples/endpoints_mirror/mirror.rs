//! The controller: for each labelled service a ConfigMap with its ready endpoints, and none for others.
//!
//! Level-triggered: handlers say which service to look at, never what happened to it. [`Mirror::reconcile`] reads the present
//! state from the local copies, compares what there is with what there should be, and writes the difference. It may run too
//! often, and after any number of missed events; it may be wrong for a moment, because its own writes are not in the local
//! copies at once, but then the server refuses the write by version and the key is looked at again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_fanout::informer::{
    Cached, EventHandler, ListWatch, Notification, SharedInformer, SharedInformerFactory, index_by,
};
use kube_fanout::resource::ObjectKey;
use kube_fanout::upstream::client::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::requests::send;
use crate::work_queue::WorkQueue;

/// Services with this label are mirrored.
pub(crate) const WANTED: &str = "example.kube-fanout.dev/mirror-endpoints";
/// Copies carry the name of their service under this label: that makes them ours.
pub(crate) const COPY_OF: &str = "example.kube-fanout.dev/endpoints-of";
/// Slices carry the name of their service under Kubernetes' own label.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The one entry of a copy.
const ENTRY: &str = "endpoints";

/// Slices by `namespace/service`.
const BY_SERVICE: &str = "service";
/// Two, so that one slow write does not hold everything up.
const WORKER_COUNT: usize = 2;

/// The name of a service's copy.
pub(crate) fn copy_name(service: &str) -> String {
    format!("{service}-endpoints")
}

/// What a copy holds: address and port of each ready endpoint, sorted, one a line.
pub(crate) fn endpoints_of<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>) -> String {
    let mut lines = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
        let ports: Vec<i32> = ports.collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let conditions = endpoint.conditions.as_ref();
            // Unknown means ready, says the API.
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

/// What was written.
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

/// The controller.
pub(crate) struct Mirror {
    client: Arc<Client>,
    services: SharedInformer<Service>,
    slices: SharedInformer<EndpointSlice>,
    copies: SharedInformer<ConfigMap>,
    queue: Arc<WorkQueue>,
}

/// The service named by a label of an object, in the object's namespace.
fn named_by_label<T>(object: &Cached<T>, label: &str) -> Option<ObjectKey> {
    let service = object.label(label)?;
    Some(ObjectKey::new(object.key().namespace(), service))
}

impl Mirror {
    /// Registers handlers with the informers of a factory, which is then started.
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

    /// A handler that puts the service which an object belongs to into the queue, whatever happened to the object.
    fn enqueue<T: Send + Sync + 'static>(
        &self,
        service_of: impl Fn(&Cached<T>) -> Option<ObjectKey> + Send + Sync + 'static,
    ) -> impl EventHandler<T> {
        let queue = Arc::clone(&self.queue);
        move |change: &Notification<T>| {
            let (one, other) = match change {
                Notification::Added { object, .. } => (object, None),
                Notification::Deleted { old, object, .. } => (object, Some(old)),
                // A slice may have been given to another service: both are affected.
                Notification::Updated { old, new } => (new, Some(old)),
            };
            let services = [Some(one), other].into_iter().flatten();
            for service in services.filter_map(|object| service_of(object)) {
                queue.add(service);
            }
        }
    }

    /// Works until the queue is closed. The informers must have synced, or copies would be deleted whose services are not there yet.
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

    /// Lets the workers finish what they have in hand.
    pub(crate) fn stop(&self) {
        self.queue.close();
    }

    /// Makes one service's copy what it should be.
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
                // The server refuses this if the copy was changed since.
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
