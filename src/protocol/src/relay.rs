//! The path at which a relay on a node asks whether the node's clients are to use this gateway (decision 62).

use http::{Method, Uri};

use super::status::Status;
use crate::resource::names::is_dns_subdomain;

const PATH: &str = "/kube-fanout/relay";

/// The name of the node whose relay asks; `None` if the request is for another path.
pub fn relay_node<'a>(method: &Method, uri: &'a Uri) -> Option<Result<&'a str, Status>> {
    if uri.path() != PATH {
        return None;
    }
    if *method != Method::GET {
        return Some(Err(Status::method_not_allowed()));
    }
    // Names of nodes need no escapes.
    let name = uri.query().and_then(|query| query.strip_prefix("node="));
    let name = name.filter(|name| is_dns_subdomain(name));
    Some(name.ok_or_else(|| {
        Status::bad_request(format!("write {PATH}?node=NAME with the name of a node"))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(method: &Method, uri: &str) -> Option<Result<String, u16>> {
        let uri = uri.parse().unwrap();
        let node = relay_node(method, &uri)?;
        Some(node.map(str::to_owned).map_err(|status| status.code))
    }

    #[test]
    fn only_a_get_with_the_name_of_one_node_is_a_question() {
        let named = |name: &str| node(&Method::GET, &format!("/kube-fanout/relay?node={name}"));
        let longest = ["a".repeat(63).as_str(); 4].join(".")[..253].to_owned();
        for name in ["n", "node-1", "ip-10-0-0-1.ec2.internal", &longest] {
            assert_eq!(named(name), Some(Ok(name.to_owned())));
        }
        let too_long = format!("{longest}a");
        for name in [
            "", "Node", "a_b", "a%2Db", "a&node=b", "-a", "a b", &too_long,
        ] {
            let name = name.replace(' ', "+");
            assert_eq!(named(&name), Some(Err(400)), "{name}");
        }
        for uri in ["/kube-fanout/relay", "/kube-fanout/relay?name=a"] {
            assert_eq!(node(&Method::GET, uri), Some(Err(400)), "{uri}");
        }
        let post = node(&Method::POST, "/kube-fanout/relay?node=a");
        assert_eq!(post, Some(Err(405)));
        for uri in [
            "/kube-fanout/relays?node=a",
            "/kube-fanout/relay/?node=a",
            "/",
        ] {
            assert_eq!(node(&Method::GET, uri), None, "{uri}");
        }
    }
}
