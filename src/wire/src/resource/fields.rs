//! The fields of a resource that a field selector may use besides `metadata.name` and `metadata.namespace`.

use super::Gvr;

/// One selectable field: its label in selectors, its path in the object, and its value when absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The label in a selector, such as `spec.nodeName`.
    pub label: &'static str,
    /// Keys from the object's root to the value; empty for a field that is never filled (`status.podIPs`).
    pub path: &'static [&'static str],
    /// The same path in protobuf: field numbers, one for each key of `path`.
    pub numbers: &'static [u32],
    /// How the value is encoded.
    pub value: FieldValue,
    /// The value of an absent field.
    pub default: &'static str,
}

/// How a selectable field's value is encoded; in selectors all values are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A string.
    String,
    /// `true` or `false`; in protobuf an integer.
    Bool,
    /// A signed integer.
    Integer,
}

/// The selectable fields of one resource. An object's field values have the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldTable(&'static [SelectableField]);

const fn field(
    label: &'static str,
    path: &'static [&'static str],
    numbers: &'static [u32],
) -> SelectableField {
    SelectableField {
        label,
        path,
        numbers,
        value: FieldValue::String,
        default: "",
    }
}

const POD: &[SelectableField] = &[
    field("spec.nodeName", &["spec", "nodeName"], &[2, 10]),
    field("spec.restartPolicy", &["spec", "restartPolicy"], &[2, 3]),
    field("spec.schedulerName", &["spec", "schedulerName"], &[2, 19]),
    field(
        "spec.serviceAccountName",
        &["spec", "serviceAccountName"],
        &[2, 8],
    ),
    SelectableField {
        value: FieldValue::Bool,
        default: "false",
        ..field("spec.hostNetwork", &["spec", "hostNetwork"], &[2, 11])
    },
    field("status.phase", &["status", "phase"], &[3, 1]),
    field("status.podIP", &["status", "podIP"], &[3, 6]),
    field("status.podIPs", &[], &[]),
    field(
        "status.nominatedNodeName",
        &["status", "nominatedNodeName"],
        &[3, 11],
    ),
];
const NODE: &[SelectableField] = &[SelectableField {
    value: FieldValue::Bool,
    default: "false",
    ..field("spec.unschedulable", &["spec", "unschedulable"], &[2, 4])
}];
const NAMESPACE: &[SelectableField] = &[field("status.phase", &["status", "phase"], &[3, 1])];
const SECRET: &[SelectableField] = &[field("type", &["type"], &[3])];
const SERVICE: &[SelectableField] = &[
    field("spec.clusterIP", &["spec", "clusterIP"], &[2, 3]),
    field("spec.type", &["spec", "type"], &[2, 4]),
];
const JOB: &[SelectableField] = &[SelectableField {
    value: FieldValue::Integer,
    default: "0",
    ..field("status.successful", &["status", "succeeded"], &[3, 5])
}];
const RESOURCE_SLICE: &[SelectableField] = &[
    field("spec.nodeName", &["spec", "nodeName"], &[2, 3]),
    field("spec.driver", &["spec", "driver"], &[2, 1]),
];

impl FieldTable {
    /// The table of a resource (docs/PROTOCOL.md §2.6); empty for a resource that is not listed there. Requests with a field
    /// that is not in the table are forwarded to upstream.
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

    /// The fields, in the order of an object's field values.
    #[must_use]
    pub const fn fields(self) -> &'static [SelectableField] {
        self.0
    }

    /// The index of a selector's label in the table; `spec.host` of pods is an alias of `spec.nodeName`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_paths_and_protobuf_field_numbers_have_equal_depth() {
        for table in [POD, NODE, NAMESPACE, SECRET, SERVICE, JOB, RESOURCE_SLICE] {
            for field in table {
                assert_eq!(field.path.len(), field.numbers.len(), "{}", field.label);
            }
            for (index, field) in table.iter().enumerate() {
                let same = |other: &SelectableField| other.numbers == field.numbers;
                assert!(!table[..index].iter().any(same), "{}", field.label);
            }
        }
    }
}
