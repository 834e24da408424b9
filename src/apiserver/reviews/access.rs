//! Answers the reviews of what a user may do.

use bytes::Bytes;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReviewSpec, SubjectAccessReviewSpec,
};
use serde::Serialize;
use serde_json::Value;

use super::ReviewInput;
use crate::apiserver::render;
use crate::apiserver::review_kinds::Review;
use crate::auth::access::{Access, ResourceAccess};
use crate::auth::rbac::RbacDecision;
use crate::auth::user::User;
use crate::protocol::status::{Status, StatusCause};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessStatus {
    allowed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// The access that a review is about. Exactly one field must be set.
struct ReviewAttributes {
    resource: Option<ResourceAttributes>,
    path: Option<NonResourceAttributes>,
}

impl ReviewInput<'_> {
    pub(super) fn self_subject_access(&self) -> Result<Bytes, Status> {
        let spec: SelfSubjectAccessReviewSpec = self.spec()?;
        let attributes = ReviewAttributes {
            resource: spec.resource_attributes,
            path: spec.non_resource_attributes,
        };
        let faults = self.faults(&attributes, None);
        self.decide(self.user, attributes, faults)
    }

    /// Answers a `SubjectAccessReview` or a `LocalSubjectAccessReview`.
    pub(super) fn subject_access(&self) -> Result<Bytes, Status> {
        let spec: SubjectAccessReviewSpec = self.spec()?;
        let user = User {
            name: spec.user.unwrap_or_default(),
            uid: spec.uid.unwrap_or_default(),
            groups: spec.groups.unwrap_or_default(),
            extra: spec.extra.unwrap_or_default(),
        };
        let attributes = ReviewAttributes {
            resource: spec.resource_attributes,
            path: spec.non_resource_attributes,
        };
        let mut faults = self.faults(&attributes, Some(&user));
        if self.endpoint.review == Review::LocalSubjectAccess {
            faults.extend(self.local_faults(&attributes));
        }
        self.decide(&user, attributes, faults)
    }

    /// Refuses the review if it has faults; otherwise records it and returns the decision.
    fn decide(
        &self,
        user: &User,
        attributes: ReviewAttributes,
        faults: Vec<StatusCause>,
    ) -> Result<Bytes, Status> {
        if !faults.is_empty() {
            return Err(self.invalid(faults));
        }
        let access = access(attributes);
        let subject = format!("{} {}", user.name, access_text(&access));
        self.counts.record(self.endpoint.review, subject);
        let decision = self.auth.authorize(user, &access);
        let allowed = decision.is_allowed();
        let (RbacDecision::Allowed(reason) | RbacDecision::NotAllowed(reason)) = decision;
        Ok(self.with_status(AccessStatus { allowed, reason }))
    }

    /// The faults of a review. `user` is the user in its spec, which a `SelfSubjectAccessReview` does not have.
    fn faults(&self, attributes: &ReviewAttributes, user: Option<&User>) -> Vec<StatusCause> {
        let mut faults = Vec::new();
        let is_both_or_none = attributes.resource.is_some() == attributes.path.is_some();
        if is_both_or_none {
            let value = Option::as_ref(&attributes.path).map_or_else(
                || "null".to_owned(),
                |path| json_text(&serde_json::to_value(path).unwrap_or_default()),
            );
            let rule =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            faults.push(StatusCause::invalid("spec", &value, rule));
        }
        if user.is_some_and(|user| user.name.is_empty() && user.groups.is_empty()) {
            let rule = "at least one of user or group must be specified";
            faults.push(StatusCause::invalid("spec.user", "\"\"", rule));
        }
        if let Some(resource) = &attributes.resource {
            faults.extend(selector_faults(resource));
        }
        faults.extend(self.metadata_fault());
        faults
    }

    /// The fault of metadata that is not empty. A `LocalSubjectAccessReview` may have a namespace.
    fn metadata_fault(&self) -> Option<StatusCause> {
        let local = self.endpoint.review == Review::LocalSubjectAccess;
        let metadata = self.object.get("metadata")?.as_object()?;
        let allowed = |key: &str| key == "managedFields" || (local && key == "namespace");
        let mut keys = metadata.iter().filter(|(_, value)| !is_empty(value));
        keys.find(|(key, _)| !allowed(key))?;
        let rule = if local {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        let value = json_text(&Value::Object(metadata.clone()));
        Some(StatusCause::invalid("metadata", &value, rule))
    }

    /// The additional faults of a `LocalSubjectAccessReview`.
    fn local_faults(&self, attributes: &ReviewAttributes) -> Vec<StatusCause> {
        let mut faults = Vec::new();
        if let Some(resource) = &attributes.resource {
            let namespace = resource.namespace.as_deref().unwrap_or_default();
            if namespace != self.endpoint.namespace {
                let value = format!("{namespace:?}");
                let field = "spec.resourceAttributes.namespace";
                faults.push(StatusCause::invalid(
                    field,
                    &value,
                    "must match metadata.namespace",
                ));
            }
        }
        if let Some(path) = &attributes.path {
            let value = json_text(&serde_json::to_value(path).unwrap_or_default());
            let rule = "disallowed on this kind of request";
            faults.push(StatusCause::invalid(
                "spec.nonResourceAttributes",
                &value,
                rule,
            ));
        }
        faults
    }
}

/// An access as text: verb, group, resource, subresource, namespace and name, separated by slashes; or verb and path.
fn access_text(access: &Access) -> String {
    match access {
        Access::Path { verb, path } => format!("{verb} {path}"),
        Access::Resource(access) => [
            &access.verb,
            &access.group,
            &access.resource,
            &access.subresource,
            &access.namespace,
            &access.name,
        ]
        .map(String::as_str)
        .join("/"),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn json_text(value: &Value) -> String {
    String::from_utf8_lossy(&render::json(value)).into_owned()
}

/// The faults of selectors: each must be either a text or a list of requirements.
fn selector_faults(resource: &ResourceAttributes) -> Vec<StatusCause> {
    // The text of a selector and the number of its requirements.
    let parts = |raw: &Option<String>, count: Option<usize>| {
        (raw.clone().unwrap_or_default(), count.unwrap_or_default())
    };
    let fields = resource.field_selector.as_ref().map(|selector| {
        parts(
            &selector.raw_selector,
            selector.requirements.as_ref().map(Vec::len),
        )
    });
    let labels = resource.label_selector.as_ref().map(|selector| {
        parts(
            &selector.raw_selector,
            selector.requirements.as_ref().map(Vec::len),
        )
    });
    let rules: [(_, &'static str, &'static str); 2] = [
        (
            fields,
            "spec.resourceAttributes.fieldSelector.rawSelector",
            "spec.resourceAttributes.fieldSelector.requirements",
        ),
        (
            labels,
            "spec.resourceAttributes.labelSelector.rawSelector",
            "spec.resourceAttributes.labelSelector.requirements",
        ),
    ];
    let mut faults = Vec::new();
    for (parts, raw_field, field) in rules {
        match parts {
            Some((raw, count)) if !raw.is_empty() && count > 0 => {
                let rule = "may not specified at the same time as requirements";
                faults.push(StatusCause::invalid(raw_field, &format!("{raw:?}"), rule));
            }
            Some((raw, 0)) if raw.is_empty() => {
                let rule = "when a selector is specified, requirements or rawSelector is required";
                faults.push(StatusCause::invalid(field, "null", rule));
            }
            Some(_) | None => {}
        }
    }
    faults
}

fn access(attributes: ReviewAttributes) -> Access {
    let Some(resource) = attributes.resource else {
        let path = attributes.path.unwrap_or_default();
        return Access::Path {
            verb: path.verb.unwrap_or_default(),
            path: path.path.unwrap_or_default(),
        };
    };
    let text = Option::unwrap_or_default;
    Access::Resource(ResourceAccess {
        verb: text(resource.verb),
        group: text(resource.group),
        version: text(resource.version),
        resource: text(resource.resource),
        subresource: text(resource.subresource),
        namespace: text(resource.namespace),
        name: text(resource.name),
        ..ResourceAccess::default()
    })
}
