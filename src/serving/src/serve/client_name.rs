//! The names of a request's client, for logs and the status page. It authenticates nobody.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};

use super::resources::ForwardCaller;
use crate::auth::caller::Caller;
use crate::auth::guard::Forwarding;
use crate::watch::WatchClient;

/// The `User-Agent` header.
pub(super) fn agent(headers: &HeaderMap) -> Cow<'_, str> {
    let agent = headers.get(USER_AGENT);
    String::from_utf8_lossy(agent.map_or(&[], HeaderValue::as_bytes))
}

/// The client of a request. An impersonated user is shown after the user who impersonates.
pub(super) fn read_client(
    headers: &HeaderMap,
    address: IpAddr,
    caller: Option<&Caller>,
) -> WatchClient {
    let agent = agent(headers);
    match caller {
        None => WatchClient::new("", &agent, address),
        Some(caller) => match &caller.impersonator {
            None => WatchClient::new(&caller.user.name, &agent, address),
            Some(impersonator) => {
                let user = format!("{} as {}", impersonator.name, caller.user.name);
                WatchClient::new(&user, &agent, address)
            }
        },
    }
}

/// The client of a request that is forwarded. Its user is known if the gateway has authenticated it, or has lately had its token reviewed.
#[must_use]
pub fn forwarded_client(
    headers: &HeaderMap,
    address: IpAddr,
    caller: &ForwardCaller,
) -> WatchClient {
    let authenticated = match (&caller.forwarding, &caller.permission) {
        (Some(Forwarding::Impersonating { caller, .. }), _) => Some(caller),
        (_, Some(permission)) => Some(&*permission.caller),
        (Some(Forwarding::AsCaller) | None, None) => None,
    };
    let mut client = read_client(headers, address, authenticated);
    if let (None, Some(user)) = (authenticated, &caller.token_user) {
        client = WatchClient::new(&user.name, &client.user_agent, address);
    }
    client
}
