//! Which fields of a resource a field selector may name, besides `metadata.name` and `metadata.namespace`.

use super::Gvr;

/// One selectable field: its label in selectors, where it stands, and what it counts as when absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The word in a selector, such as `spec.nodeName`.
    pub label: &'static str,
    /// Keys from the object's root to the value; empty for a field that is never filled (`status.podIPs`).
    pub path: &'static [&'static str],
    /// The value of an absent field.
    pub default: &'static str,
}

/// The selectable fields of one resource; an object's values stand in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldTable(&'static [Field]);

const fn field(label: &'static str, path: &'static [&'static str]) -> Field {
    Field {
        label,
        path,
        default: "",
    }
}

const POD: &[Field] = &[
    field("spec.nodeName", &["spec", "nodeName"]),
    field("spec.restartPolicy", &["spec", "restartPolicy"]),
    field("spec.schedulerName", &["spec", "schedulerName"]),
    field("spec.serviceAccountName", &["spec", "serviceAccountName"]),
    Field {
        label: "spec.hostNetwork",
        path: &["spec", "hostNetwork"],
        default: "false",
    },
    field("status.phase", &["status", "phase"]),
    field("status.podIP", &["status", "podIP"]),
    field("status.podIPs", &[]),
    field("status.nominatedNodeName", &["status", "nominatedNodeName"]),
];
const NODE: &[Field] = &[Field {
    label: "spec.unschedulable",
    path: &["spec", "unschedulable"],
    default: "false",
}];
const NAMESPACE: &[Field] = &[field("status.phase", &["status", "phase"])];
const SECRET: &[Field] = &[field("type", &["type"])];
const SERVICE: &[Field] = &[
    field("spec.clusterIP", &["spec", "clusterIP"]),
    field("spec.type", &["spec", "type"]),
];
const JOB: &[Field] = &[Field {
    label: "status.successful",
    path: &["status", "succeeded"],
    default: "0",
}];
const RESOURCE_SLICE: &[Field] = &[
    field("spec.nodeName", &["spec", "nodeName"]),
    field("spec.driver", &["spec", "driver"]),
];

impl FieldTable {
    /// The table of a resource (protocol.md §2.6). Resources not named there have none; what is asked
    /// for beyond the table is for upstream to answer.
    #[must_use]
    pub fn of(gvr: &Gvr) -> Self {
        Self(match (&*gvr.group, &*gvr.resource) {
            ("", "pods") => POD,
            ("", "nodes") => NODE,
            ("", "namespaces") => NAMESPACE,
            ("", "secrets") => SECRET,
            ("", "services") => SERVICE,
            ("batch", "jobs") => JOB,
            ("resource.k8s.io", "resourceslices") => RESOURCE_SLICE,
            _ => &[],
        })
    }

    /// The fields, in the order of an object's values.
    #[must_use]
    pub const fn fields(self) -> &'static [Field] {
        self.0
    }

    /// Where a selector's label stands in the table; knows the alias `spec.host` of pods.
    #[must_use]
    pub fn index_of(self, label: &str) -> Option<usize> {
        let label = if label == "spec.host" && self.0 == POD {
            "spec.nodeName"
        } else {
            label
        };
        self.0.iter().position(|field| field.label == label)
    }
}
