//! Access reviews: converts a question into the API server's review objects, and its response into a verdict.

use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes,
    SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};

use super::access::{Access, ResourceAccess};
use super::user::User;

/// An authorizer's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessVerdict {
    /// Whether the access is allowed.
    pub is_allowed: bool,
    /// The authorizer's reason; may be empty.
    pub reason: String,
}

/// A response to an access review that contains no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewAnswerError {
    /// The response has no status.
    #[error("the response to an access review has no status")]
    NoStatus,
    /// The response both allows and denies the access.
    #[error("the response to an access review both allows and denies the access")]
    Contradiction,
}

/// A review that asks whether a user may perform an access.
#[must_use]
pub fn review_of(user: &User, access: &Access) -> SubjectAccessReview {
    let (resource_attributes, non_resource_attributes) = attributes(access);
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: non_empty(&user.name),
            uid: non_empty(&user.uid),
            groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes,
            non_resource_attributes,
        },
        ..SubjectAccessReview::default()
    }
}

/// A review that asks whether the sender itself may perform an access.
#[must_use]
pub fn self_review_of(access: &Access) -> SelfSubjectAccessReview {
    let (resource_attributes, non_resource_attributes) = attributes(access);
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes,
            non_resource_attributes,
        },
        ..SelfSubjectAccessReview::default()
    }
}

/// The verdict in the status of a review.
///
/// # Errors
/// [`ReviewAnswerError`] if the status is missing or contradicts itself.
pub fn verdict(
    status: Option<SubjectAccessReviewStatus>,
) -> Result<AccessVerdict, ReviewAnswerError> {
    let status = status.ok_or(ReviewAnswerError::NoStatus)?;
    if status.allowed && status.denied == Some(true) {
        return Err(ReviewAnswerError::Contradiction);
    }
    Ok(AccessVerdict {
        is_allowed: status.allowed,
        reason: status.reason.unwrap_or_default(),
    })
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn attributes(access: &Access) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    match access {
        Access::Resource(access) => (Some(resource_attributes(access)), None),
        Access::Path { verb, path } => {
            let attributes = NonResourceAttributes {
                path: non_empty(path),
                verb: non_empty(verb),
            };
            (None, Some(attributes))
        }
    }
}

/// Selectors are sent as the client wrote them. The API server parses them for its authorizers with the parser that it uses for requests,
/// so no difference between parsers can matter. It omits what it cannot parse, which never allows more.
fn resource_attributes(access: &ResourceAccess) -> ResourceAttributes {
    let field_selector = non_empty(&access.field_selector).map(|raw| FieldSelectorAttributes {
        raw_selector: Some(raw),
        requirements: None,
    });
    let label_selector = non_empty(&access.label_selector).map(|raw| LabelSelectorAttributes {
        raw_selector: Some(raw),
        requirements: None,
    });
    ResourceAttributes {
        verb: non_empty(&access.verb),
        group: non_empty(&access.group),
        version: non_empty(&access.version),
        resource: non_empty(&access.resource),
        subresource: non_empty(&access.subresource),
        namespace: non_empty(&access.namespace),
        name: non_empty(&access.name),
        field_selector,
        label_selector,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn access() -> ResourceAccess {
        ResourceAccess {
            verb: "list".to_owned(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            ..ResourceAccess::default()
        }
    }

    fn user() -> User {
        User {
            name: "jane".to_owned(),
            ..User::default()
        }
    }

    #[test]
    fn every_part_of_a_question_reaches_the_review() {
        let user = User {
            uid: "7".to_owned(),
            groups: vec!["b".to_owned(), "a".to_owned()],
            extra: [("scopes".to_owned(), vec!["x".to_owned(), "y".to_owned()])].into(),
            ..user()
        };
        let access = ResourceAccess {
            group: "apps".to_owned(),
            subresource: "scale".to_owned(),
            namespace: "n".to_owned(),
            name: "o".to_owned(),
            field_selector: "metadata.name=o".to_owned(),
            label_selector: "a in (b,c)".to_owned(),
            ..access()
        };
        let attributes = json!({
            "verb": "list", "group": "apps", "version": "v1", "resource": "pods", "subresource": "scale",
            "namespace": "n", "name": "o", "fieldSelector": {"rawSelector": "metadata.name=o"},
            "labelSelector": {"rawSelector": "a in (b,c)"},
        });
        let access = Access::Resource(access);
        let review = serde_json::to_value(review_of(&user, &access)).unwrap();
        let expected = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {
                "user": "jane", "uid": "7", "groups": ["b", "a"], "extra": {"scopes": ["x", "y"]},
                "resourceAttributes": attributes,
            },
        });
        assert_eq!(review, expected);
        let review = serde_json::to_value(self_review_of(&access)).unwrap();
        let expected = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {"resourceAttributes": attributes},
        });
        assert_eq!(review, expected);
    }

    #[test]
    fn empty_attributes_are_left_out_of_a_review() {
        let access = Access::Resource(access());
        let review = serde_json::to_value(review_of(&user(), &access)).unwrap();
        let attributes = json!({"verb": "list", "version": "v1", "resource": "pods"});
        assert_eq!(
            review["spec"],
            json!({"user": "jane", "resourceAttributes": attributes})
        );
        let access = Access::Path {
            verb: "get".to_owned(),
            path: "/version".to_owned(),
        };
        let review = serde_json::to_value(review_of(&user(), &access)).unwrap();
        let attributes = json!({"verb": "get", "path": "/version"});
        assert_eq!(
            review["spec"],
            json!({"user": "jane", "nonResourceAttributes": attributes})
        );
    }

    #[track_caller]
    fn check(status: &Value, expected: Option<(bool, &str)>) {
        let answer = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": status,
        });
        let actual = serde_json::from_value::<SubjectAccessReview>(answer)
            .ok()
            .and_then(|review| verdict(review.status).ok());
        let expected = expected.map(|(is_allowed, reason)| AccessVerdict {
            is_allowed,
            reason: reason.to_owned(),
        });
        assert_eq!(actual, expected, "{status}");
    }

    #[test]
    fn only_an_unambiguous_review_allows() {
        check(&json!({"allowed": true}), Some((true, "")));
        check(
            &json!({"allowed": true, "denied": false, "reason": "why"}),
            Some((true, "why")),
        );
        check(
            &json!({"allowed": true, "evaluationError": "half"}),
            Some((true, "")),
        );
        check(
            &json!({"allowed": false, "reason": "no"}),
            Some((false, "no")),
        );
        check(
            &json!({"allowed": false, "denied": true}),
            Some((false, "")),
        );
        check(&json!({}), Some((false, "")));
        check(&json!({"allowed": true, "denied": true}), None);
        check(&json!({"allowed": "true"}), None);
        check(&json!({"allowed": 1}), None);
        check(&json!(null), None);
        check(&json!([true]), None);
    }
}
