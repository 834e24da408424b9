//! The kinds of reviews, and the requests that create them. `reviews` answers these.

use std::sync::LazyLock;

use http::Method;

use super::kinds::{Catalogue, ServedKind};
use crate::protocol::status::Status;

/// The API group of reviews of who a caller is.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The API group of reviews of what a user may do.
const AUTHORIZATION: &str = "authorization.k8s.io";

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Review {
    /// `SelfSubjectReview`: who sends this request.
    SelfSubject,
    /// `TokenReview`: the user of a token.
    Token,
    /// `LocalSubjectAccessReview`: whether a user has an access in one namespace.
    LocalSubjectAccess,
    /// `SelfSubjectAccessReview`: whether the sender has an access.
    SelfSubjectAccess,
    /// `SubjectAccessReview`: whether a user has an access.
    SubjectAccess,
}

/// All kinds of reviews, in the order of discovery.
const ALL: [Review; 5] = [
    Review::SelfSubject,
    Review::Token,
    Review::LocalSubjectAccess,
    Review::SelfSubjectAccess,
    Review::SubjectAccess,
];

static KINDS: LazyLock<Vec<ServedKind>> = LazyLock::new(|| {
    let kind = |review: Review| {
        let (group, plural, kind) = review.names();
        let namespaced = review == Review::LocalSubjectAccess;
        ServedKind::review(group, plural, kind, namespaced)
    };
    ALL.into_iter().map(kind).collect()
});

impl Review {
    /// Group, plural name and kind.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::SelfSubject => (AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
            Self::Token => (AUTHENTICATION, "tokenreviews", "TokenReview"),
            Self::LocalSubjectAccess => (
                AUTHORIZATION,
                "localsubjectaccessreviews",
                "LocalSubjectAccessReview",
            ),
            Self::SelfSubjectAccess => (
                AUTHORIZATION,
                "selfsubjectaccessreviews",
                "SelfSubjectAccessReview",
            ),
            Self::SubjectAccess => (AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
        }
    }

    /// The review with this group, version and plural name.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        let is_named = |review: &Self| {
            let (review_group, review_plural, _) = review.names();
            (group, version, plural) == (review_group, "v1", review_plural)
        };
        ALL.into_iter().find(is_named)
    }

    pub(super) const fn plural(self) -> &'static str {
        self.names().1
    }

    /// Whether this is the plural name of a review.
    pub(super) fn is_plural(name: &str) -> bool {
        ALL.iter().any(|review| review.plural() == name)
    }

    /// `apiVersion` and `kind`.
    pub(super) fn type_names(self) -> (String, &'static str) {
        let (group, _, kind) = self.names();
        (format!("{group}/v1"), kind)
    }

    pub(super) fn kind(self) -> &'static ServedKind {
        let index = ALL.iter().position(|review| *review == self);
        &KINDS[index.unwrap_or_default()]
    }
}

/// All kinds in discovery: those of the catalogue, and reviews.
pub(super) fn discovered(catalogue: &Catalogue) -> impl Iterator<Item = &ServedKind> {
    catalogue.kinds().iter().chain(KINDS.iter())
}

/// The path of a review: its kind and namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReviewEndpoint {
    pub(super) review: Review,
    /// Empty for reviews that are not namespaced.
    pub(super) namespace: String,
}

impl ReviewEndpoint {
    /// The endpoint of a request to the path of a review.
    ///
    /// # Errors
    /// kube-apiserver's routing errors: 404 for a name or the wrong scope, 405 for a method other than POST.
    pub(super) fn of(
        review: Review,
        namespace: &str,
        has_name: bool,
        method: &Method,
    ) -> Result<Self, Status> {
        let is_namespaced = review.kind().resource.namespaced;
        if has_name || is_namespaced == namespace.is_empty() {
            return Err(Status::unknown_resource());
        }
        if method != Method::POST {
            return Err(Status::method_not_allowed());
        }
        Ok(Self {
            review,
            namespace: namespace.to_owned(),
        })
    }
}
