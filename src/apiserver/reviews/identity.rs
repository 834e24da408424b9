//! Answers the reviews of who a caller is.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::api::authentication::v1::TokenReviewSpec;
use serde::Serialize;

use super::ReviewInput;
use crate::apiserver::review_kinds::Review;
use crate::auth::user::User;
use crate::protocol::status::Status;

/// A user in the status of a review.
#[derive(Default, Serialize)]
struct ReviewUser<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a BTreeMap<String, Vec<String>>>,
}

#[derive(Serialize)]
struct TokenStatus<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    authenticated: bool,
    user: ReviewUser<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SelfSubjectStatus<'a> {
    user_info: ReviewUser<'a>,
}

impl<'a> From<&'a User> for ReviewUser<'a> {
    fn from(user: &'a User) -> Self {
        Self {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: Some(&user.extra).filter(|extra| !extra.is_empty()),
        }
    }
}

impl ReviewInput<'_> {
    pub(super) fn token(&self) -> Result<Bytes, Status> {
        let spec: TokenReviewSpec = self.spec()?;
        let token = spec.token;
        if token.is_empty() {
            let message = "token is required for TokenReview in authentication";
            return Err(Status::bad_request(message));
        }
        let requested = spec.audiences.unwrap_or_default();
        self.counts.record(Review::Token, token.clone());
        Ok(match self.auth.review_token(&token, &requested) {
            Some((user, audiences)) => self.with_status(TokenStatus {
                authenticated: true,
                user: ReviewUser::from(&user),
                audiences: &audiences,
                error: "",
            }),
            None => self.with_status(TokenStatus {
                authenticated: false,
                user: ReviewUser::default(),
                audiences: &[],
                error: "invalid bearer token",
            }),
        })
    }

    pub(super) fn self_subject(&self) -> Bytes {
        let name = self.user.name.clone();
        self.counts.record(Review::SelfSubject, name);
        self.with_status(SelfSubjectStatus {
            user_info: ReviewUser::from(self.user),
        })
    }
}
