//! Gateways that a request has passed, in a header: a gateway that finds itself there is its own API server. Answers no request.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::resource::random;

/// The header. Not `Via`, for which servers behind the API server's proxies answer differently.
const HOPS: HeaderName = HeaderName::from_static("kube-fanout-hops");
/// More gateways one behind the other than any tree has.
const HOPS_MAX: usize = 16;
/// Digits of an id.
const ID_LEN: usize = 16;

/// The id of one gateway, drawn anew for each process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HopId(String);

impl HopId {
    /// An id that no other gateway has.
    pub(super) fn random() -> Self {
        Self(format!("{:0ID_LEN$x}", random()))
    }

    /// Whether a request with these headers has passed this gateway, or more gateways than there can be.
    pub(super) fn has_passed(&self, headers: &HeaderMap) -> bool {
        let mut hops = hops(headers);
        let is_own = |hop| hop == self.0.as_bytes();
        hops.by_ref().take(HOPS_MAX).any(is_own) || hops.next().is_some()
    }

    /// Adds this gateway to those that a request has passed.
    pub(super) fn append(&self, headers: &mut HeaderMap) {
        let mut passed: Vec<&[u8]> = hops(headers).take(HOPS_MAX).collect();
        passed.push(self.0.as_bytes());
        // What came in a header may be in one again.
        if let Ok(passed) = HeaderValue::from_bytes(&passed.join(&b","[..])) {
            headers.insert(HOPS, passed);
        }
    }
}

/// Whether the API server may pass a request with this path on to a workload, which is not to see the header. A segment that is not what it
/// seems, or hides in escapes, costs no more than the mark: the gateway's own requests tell of loops, too.
pub(super) fn may_reach_workload(path: &str) -> bool {
    path.split('/')
        .any(|segment| segment == "proxy" || segment.contains('%'))
}

/// The ids in the header. Anything else in it was not written by a gateway, and goes no further.
fn hops(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(HOPS)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|hop| hop.len() == ID_LEN && hop.iter().all(u8::is_ascii_hexdigit))
}

/// Removes the header.
pub(super) fn clear(headers: &mut HeaderMap) {
    headers.remove(HOPS);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a request that has passed these gateways.
    fn passed(gateways: &[&HopId]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for gateway in gateways {
            gateway.append(&mut headers);
        }
        headers
    }

    #[test]
    fn a_gateway_finds_itself_among_those_that_a_request_has_passed() {
        let (first, second) = (HopId::random(), HopId::random());
        assert!(!first.has_passed(&passed(&[])));
        assert!(first.has_passed(&passed(&[&first, &second])));
        assert!(second.has_passed(&passed(&[&first, &second])));
        assert!(!first.has_passed(&passed(&[&second])));
    }

    #[test]
    fn what_may_reach_a_workload_is_known_by_its_path() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/services/https:web:443/proxy", true),
            ("/api/v1/nodes/a/proxy/metrics", true),
            ("/api/v1/namespaces/a/pods/b/%70roxy/", true),
            ("/api/v1/namespaces/a/pods/proxy-0/log", false),
            ("/version", false),
        ] {
            assert_eq!(may_reach_workload(path), expected, "{path}");
        }
    }

    #[test]
    fn a_tree_has_at_most_sixteen_tiers() {
        let gateways: Vec<_> = (0..=HOPS_MAX).map(|_| HopId::random()).collect();
        let own = HopId::random();
        let path: Vec<_> = gateways.iter().collect();
        assert!(!own.has_passed(&passed(&path[..HOPS_MAX])));
        assert!(own.has_passed(&passed(&path)));
    }

    #[test]
    fn what_no_gateway_wrote_is_neither_counted_nor_sent_on() {
        let own = HopId::random();
        let mut headers = HeaderMap::new();
        let text = "x,,not an id, 0123456789abcdeg".repeat(100);
        headers.append(HOPS, HeaderValue::from_str(&text).unwrap());
        headers.append(HOPS, HeaderValue::from_bytes(b"\xff").unwrap());
        headers.append(HOPS, HeaderValue::from_static(" 0123456789abcdef "));
        assert!(!own.has_passed(&headers));
        own.append(&mut headers);
        let expected = format!("0123456789abcdef,{}", own.0);
        assert_eq!(headers.get_all(HOPS).iter().count(), 1);
        assert_eq!(headers[HOPS], expected);
    }
}
