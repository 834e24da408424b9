//! Access reviews: the questions as the API server takes them, and what its answers say.

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

/// An answer that decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewAnswerError {
    /// It has no status.
    #[error("an access review was answered without a status")]
    NoStatus,
    /// It says both yes and no.
    #[error("an access review was both allowed and denied")]
    Contradiction,
}

/// Whether a user may do something.
#[must_use]
pub fn review_of(user: &User, access: &Access) -> SubjectAccessReview {
    let (resource_attributes, non_resource_attributes) = attributes(access);
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: text(&user.name),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()).filter(|groups| !groups.is_empty()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes,
            non_resource_attributes,
        },
        ..SubjectAccessReview::default()
    }
}

/// Whether the sender may do something.
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

/// What an answer says.
///
/// # Errors
/// [`ReviewAnswerError`] if it does not make sense.
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

fn attributes(access: &Access) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    match access {
        Access::Resource(access) => (Some(resource_attributes(access)), None),
        Access::Path { verb, path } => {
            let attributes = NonResourceAttributes {
                path: text(path),
                verb: text(verb),
            };
            (None, Some(attributes))
        }
    }
}

/// Selectors travel as the client wrote them: the API server parses them for its authorizers as it parses those of requests, so
/// no other parser can read more or less into them than it does. It leaves out what it cannot parse, which never allows more.
fn resource_attributes(access: &ResourceAccess) -> ResourceAttributes {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let field_selector = text(&access.field_selector).map(|raw| FieldSelectorAttributes {
        raw_selector: Some(raw),
        requirements: None,
    });
    let label_selector = text(&access.label_selector).map(|raw| LabelSelectorAttributes {
        raw_selector: Some(raw),
        requirements: None,
    });
    ResourceAttributes {
        verb: text(&access.verb),
        group: text(&access.group),
        version: text(&access.version),
        resource: text(&access.resource),
        subresource: text(&access.subresource),
        namespace: text(&access.namespace),
        name: text(&access.name),
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
    fn what_is_not_asked_for_is_left_out() {
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
    fn says(status: &Value, expected: Option<(bool, &str)>) {
        let answer = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": status,
        });
        let said = serde_json::from_value::<SubjectAccessReview>(answer)
            .ok()
            .and_then(|review| verdict(review.status).ok());
        let expected = expected.map(|(is_allowed, reason)| AccessVerdict {
            is_allowed,
            reason: reason.to_owned(),
        });
        assert_eq!(said, expected, "{status}");
    }

    #[test]
    fn an_answer_allows_only_if_it_says_so_and_nothing_else() {
        says(&json!({"allowed": true}), Some((true, "")));
        says(
            &json!({"allowed": true, "denied": false, "reason": "why"}),
            Some((true, "why")),
        );
        says(
            &json!({"allowed": true, "evaluationError": "half"}),
            Some((true, "")),
        );
        says(
            &json!({"allowed": false, "reason": "no"}),
            Some((false, "no")),
        );
        says(
            &json!({"allowed": false, "denied": true}),
            Some((false, "")),
        );
        says(&json!({}), Some((false, "")));
        says(&json!({"allowed": true, "denied": true}), None);
        says(&json!({"allowed": "true"}), None);
        says(&json!({"allowed": 1}), None);
        says(&json!(null), None);
        says(&json!([true]), None);
    }
}
