//! Who may see the status, and change the log filter: those who could read the process anyway, or who have the right to it.
//!
//! - A client on the same machine, which also includes `kubectl port-forward`: Kubernetes has authorized it.
//! - Everybody else with a token of a user who has the [`AccessRight`], as the gateway's own port checks it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use super::visit::Visit;
use crate::auth::access::Access;
use crate::auth::caller::{CallerRefusal, Continuity, PeerIdentity};
use crate::auth::guard::Guard;

/// A right that callers from elsewhere need: a verb and a non-resource path.
pub(super) struct AccessRight {
    pub(super) verb: &'static str,
    pub(super) path: &'static str,
    /// What the right is to, for messages.
    pub(super) subject: &'static str,
}
/// How long a review may take.
const REVIEW_WAIT_MAX: Duration = Duration::from_secs(10);
/// Headers that only a proxy adds: behind one, the address of the connection says nothing about the client.
const PROXY_HEADERS: [&str; 5] = [
    "forwarded",
    "via",
    "traceparent",
    "x-real-ip",
    "x-request-id",
];
/// Those of load balancers and of the proxies of service meshes, by how their names begin.
const PROXY_HEADER_PREFIXES: [&str; 4] = ["x-forwarded-", "x-envoy-", "x-b3-", "l5d-"];

/// How the log names a client on the same machine.
const LOCAL_CLIENT: &str = "a client on this machine";

/// A refusal: status code and text.
pub(super) type AccessRefusal = (StatusCode, String);

/// Checks whether the client has a right, and opens its entry in the audit log; returns its name for the log.
///
/// # Errors
/// The response to a client that does not have it.
pub(super) async fn check(visit: &mut Visit, right: &AccessRight) -> Result<String, AccessRefusal> {
    let checked = decide(visit, right).await;
    visit.record();
    checked
}

async fn decide(visit: &mut Visit, right: &AccessRight) -> Result<String, AccessRefusal> {
    if is_local(visit.address, &visit.headers) {
        return Ok(LOCAL_CLIENT.to_owned());
    }
    let AccessRight {
        verb,
        path,
        subject,
    } = right;
    let guard = visit.guard.clone().ok_or_else(|| {
        let text = format!(
            "{subject} is for clients on loopback only, because the gateway does not authenticate callers: use kubectl port-forward\n"
        );
        (StatusCode::FORBIDDEN, text)
    })?;
    // Others cannot have the right, and a review for each of them would be a load upstream.
    if !visit.headers.contains_key(AUTHORIZATION) {
        let text = format!(
            "{subject} needs a bearer token, except on loopback: use kubectl port-forward\n"
        );
        return Err((StatusCode::UNAUTHORIZED, text));
    }
    let review = review(&guard, visit, right);
    match timeout(REVIEW_WAIT_MAX, review).await {
        Ok(Ok(user)) => Ok(user),
        Ok(Err(CallerRefusal::Unauthorized)) => Err((
            StatusCode::UNAUTHORIZED,
            "the token is not valid\n".to_owned(),
        )),
        // Upstream does not see this request, so what it would have to decide is denied.
        Ok(Err(
            CallerRefusal::Forbidden { .. }
            | CallerRefusal::Forward
            | CallerRefusal::BadRequest { .. },
        )) => Err((
            StatusCode::FORBIDDEN,
            format!("the user may not {verb} the path {path}\n"),
        )),
        Ok(Err(
            CallerRefusal::Failed { .. }
            | CallerRefusal::Unverified
            | CallerRefusal::Busy
            | CallerRefusal::Undecided { .. },
        ))
        | Err(_) => Err((
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the right to {verb} the path {path} cannot be checked now\n"),
        )),
    }
}

/// The name of the user, with that of the user who acts as it.
async fn review(
    guard: &Guard,
    visit: &mut Visit,
    right: &AccessRight,
) -> Result<String, CallerRefusal> {
    let peer = PeerIdentity {
        peer: visit.address.into(),
        ..PeerIdentity::default()
    };
    let caller = guard
        .authenticate(&visit.headers, &peer, Continuity::New)
        .await;
    let caller = caller.map_err(|denial| visit.identify_denied(denial))?;
    visit.identify(&caller);
    let access = Access::Path {
        verb: right.verb.to_owned(),
        path: right.path.to_owned(),
    };
    guard.authorize(&caller, &access, Continuity::New).await?;
    Ok(match &caller.impersonator {
        Some(real) => format!("{} as {}", real.name, caller.user.name),
        None => caller.user.name.clone(),
    })
}

/// Whether the client is on this machine and means it. A page of another site whose name leads to loopback has its own name in `Host`; a
/// proxy on this machine brings clients from elsewhere. Service meshes use other addresses of 127.0.0.0/8.
fn is_local(address: IpAddr, headers: &HeaderMap) -> bool {
    let is_loopback = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ]
    .contains(&address.to_canonical());
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    is_loopback
        && host.is_some_and(is_local_name)
        && hosts.next().is_none()
        && !headers.keys().any(|name| is_of_proxy(name.as_str()))
}

fn is_of_proxy(name: &str) -> bool {
    PROXY_HEADERS.contains(&name)
        || PROXY_HEADER_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Whether a `Host` header names this machine, with any port: `kubectl port-forward` may use another one.
fn is_local_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|local| name.eq_ignore_ascii_case(local))
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, HeaderValue};

    use super::*;

    #[track_caller]
    fn check_local(address: &str, headers: &[(&'static str, &str)], expected: bool) {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).unwrap();
                (HeaderName::from_static(name), value)
            })
            .collect();
        let found = is_local(address.parse().unwrap(), &headers);
        assert_eq!(found, expected, "{address} {headers:?}");
    }

    #[test]
    fn only_clients_on_this_machine_are_local() {
        for host in [
            "localhost",
            "localhost:9090",
            "127.0.0.1:1",
            "[::1]:9090",
            "LOCALHOST",
        ] {
            check_local("127.0.0.1", &[("host", host)], true);
            check_local("::1", &[("host", host)], true);
            check_local("::ffff:127.0.0.1", &[("host", host)], true);
            check_local("10.0.0.1", &[("host", host)], false);
        }
        check_local("127.0.0.1", &[], false);
    }

    #[test]
    fn a_site_that_leads_to_loopback_is_not_local() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9090",
            "localhost:9090:evil",
            "",
        ] {
            check_local("127.0.0.1", &[("host", host)], false);
        }
    }

    #[test]
    fn a_proxy_on_this_machine_is_not_local() {
        for name in PROXY_HEADERS {
            check_local("127.0.0.1", &[("host", "localhost"), (name, "a")], false);
        }
        for name in [
            "x-forwarded-proto",
            "x-envoy-expected-rq-timeout-ms",
            "l5d-client-id",
        ] {
            check_local("127.0.0.1", &[("host", "localhost"), (name, "a")], false);
        }
        // The address from which a mesh's proxy connects.
        check_local("127.0.0.6", &[("host", "localhost")], false);
    }
}
