//! Names of the objects of `deploy/inject`, and of labels. Reads nothing.

/// Name of policy, binding and ConfigMap.
pub(super) const NAME: &str = "kube-fanout-inject";
/// The Service that is the API's address for injected pods.
pub(super) const SERVICE: &str = "kube-fanout-api";
/// The EndpointSlice with the API servers, its stand-by.
pub(super) const STANDBY: &str = "kube-fanout-api-direct";
/// The label of namespaces and pods.
pub(super) const LABEL: &str = "kube-fanout.io/inject";
/// The annotation of injected pods.
pub(super) const INJECTED: &str = "kube-fanout.io/injected";
/// The annotation of the Service with the uids of the gateways that ran at the first `off`.
pub(super) const OFF_GATEWAYS: &str = "kube-fanout.io/off-gateways";
/// A label in the Service's selector that no pod has.
pub(super) const OFF: &str = "kube-fanout.io/off";
