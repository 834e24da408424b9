//! Reads the APIServices, as a gateway does.

use super::requests::{CheckRequestError, decode, read_long};
use crate::cache_rule::{ApiServiceKnowledge, ApiServices, api_services};
use crate::upstream::client::Client;

/// What a gateway would know of the APIServices.
pub(super) async fn known(client: &Client) -> Result<ApiServices, CheckRequestError> {
    let path = api_services().collection_path();
    decode(&path, read_long(client, &path).await?)
}

/// The same for the rule.
pub(super) async fn knowledge(client: &Client) -> ApiServiceKnowledge {
    match known(client).await {
        Ok(services) => ApiServiceKnowledge::Known(services),
        Err(error) => ApiServiceKnowledge::Unreadable {
            reason: error.to_string(),
            last: None,
        },
    }
}
