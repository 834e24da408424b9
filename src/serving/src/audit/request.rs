//! The facts about a request that its audit events contain, taken from its head. Pure.

use core::net::IpAddr;

use http::HeaderMap;
use http::header::USER_AGENT;
use jiff::Timestamp;

use super::event::ObjectReference;
use super::policy::AuditTarget;

/// The API server truncates longer values at this length and appends [`TRUNCATED`].
const USER_AGENT_LEN_MAX: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";

/// The request that audit events are about.
#[derive(Clone, Debug)]
pub struct Request {
    /// The request's audit id (`Audit-ID` header).
    pub audit_id: String,
    /// When the request was received.
    pub received_at: Timestamp,
    /// Path and query as they were sent.
    pub uri: String,
    /// The path with percent-encoding decoded, for policies.
    pub path: String,
    /// The verb as authorization names it.
    pub verb: String,
    /// The resource or object that the request is about; `None` for other paths.
    pub object: Option<ObjectReference>,
    /// The client's addresses; see [`source_ips`].
    pub source_ips: Vec<IpAddr>,
    /// The truncated `User-Agent`; see [`user_agent`].
    pub user_agent: String,
}

impl Request {
    /// The resource or path that the policy evaluates.
    pub(super) fn target(&self) -> AuditTarget<'_> {
        match &self.object {
            Some(object) => AuditTarget::Object(object),
            None => AuditTarget::Path(&self.path),
        }
    }

    /// Whether the response lasts until client or server end it.
    pub(super) fn is_long_running(&self) -> bool {
        const SUBRESOURCES: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
        let subresource = self
            .object
            .as_ref()
            .map(|object| object.subresource.as_str());
        matches!(self.verb.as_str(), "watch" | "proxy")
            || subresource.is_some_and(|subresource| SUBRESOURCES.contains(&subresource))
    }
}

/// The addresses of a request's client, as the API server collects them: first those of `X-Forwarded-For` and `X-Real-Ip`, which any
/// client can forge, and last the address of the connection.
#[must_use]
pub fn source_ips(headers: &HeaderMap, connection: IpAddr) -> Vec<IpAddr> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let address = |text: &str| text.trim().parse().ok().map(|ip: IpAddr| ip.to_canonical());
    let forwarded = text("x-forwarded-for").unwrap_or_default().split(',');
    let mut found: Vec<IpAddr> = forwarded.filter_map(address).collect();
    if let Some(ip) = text("x-real-ip").and_then(address)
        && !found.contains(&ip)
    {
        found.push(ip);
    }
    let connection = connection.to_canonical();
    if found.last() != Some(&connection) {
        found.push(connection);
    }
    found
}

/// The `User-Agent` header, truncated to 1,024 bytes.
#[must_use]
pub fn user_agent(headers: &HeaderMap) -> String {
    let bytes = headers
        .get(USER_AGENT)
        .map_or(&[][..], |value| value.as_bytes());
    match bytes.get(..USER_AGENT_LEN_MAX) {
        Some(start) if bytes.len() > USER_AGENT_LEN_MAX => {
            format!("{}{TRUNCATED}", String::from_utf8_lossy(start))
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        fields.iter().map(field).collect()
    }

    #[test]
    #[expect(clippy::type_complexity, reason = "a table of rows")]
    fn the_address_of_the_connection_is_last_whatever_headers_say() {
        let rows: [(&[(&str, &str)], &[&str]); 7] = [
            (&[], &["10.0.0.1"]),
            (
                &[("x-forwarded-for", "1.2.3.4, 5.6.7.8")],
                &["1.2.3.4", "5.6.7.8", "10.0.0.1"],
            ),
            (
                &[("x-forwarded-for", "nobody,,1.2.3.4")],
                &["1.2.3.4", "10.0.0.1"],
            ),
            (&[("x-forwarded-for", "10.0.0.1")], &["10.0.0.1"]),
            (&[("x-real-ip", "1.2.3.4")], &["1.2.3.4", "10.0.0.1"]),
            (
                &[
                    ("x-forwarded-for", "1.2.3.4,9.9.9.9"),
                    ("x-real-ip", "1.2.3.4"),
                ],
                &["1.2.3.4", "9.9.9.9", "10.0.0.1"],
            ),
            (&[("x-real-ip", "::ffff:1.2.3.4")], &["1.2.3.4", "10.0.0.1"]),
        ];
        for (fields, expected) in rows {
            let found = source_ips(&headers(fields), "::ffff:10.0.0.1".parse().unwrap());
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{fields:?}");
        }
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        for (length, expected) in [(3, 3), (1024, 1024), (1025, 1024 + TRUNCATED.len())] {
            let agent = user_agent(&headers(&[("user-agent", &"a".repeat(length))]));
            assert_eq!(agent.len(), expected);
        }
        assert_eq!(user_agent(&HeaderMap::new()), "");
    }
}
