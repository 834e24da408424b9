//! The names of the API groups, without their resources: the smallest discovery document.

use std::collections::BTreeSet;

use serde::de::Error as _;

use super::documents::DiscoveryResponse;
use super::{AskError, read_document};
use crate::client::Client;

/// The names of the API groups that the server lists at `/apis`, which does not have the core group. The caller bounds the time.
///
/// # Errors
/// See [`AskError`].
pub async fn api_groups(client: &Client) -> Result<BTreeSet<String>, AskError> {
    match read_document(client, "/apis", ACCEPT_PLAIN).await? {
        DiscoveryResponse::Groups(entries) => {
            Ok(entries.into_iter().map(|entry| entry.group).collect())
        }
        DiscoveryResponse::Aggregated { .. } | DiscoveryResponse::Resources(_) => {
            Err(serde_json::Error::custom("not an APIGroupList").into())
        }
    }
}

/// The aggregated document would bring all resources, and leaves out groups without any.
const ACCEPT_PLAIN: &str = "application/json";
