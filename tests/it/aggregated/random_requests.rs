//! Random callers and requests, and the comparison of what they get through a gateway with what the server itself sends.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use super::stage::{AggregatedStage, CALLERS, POLICIES};
use crate::support::random::Random;

const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const METADATA_EVENT: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Pages that are followed.
const PAGES_MAX: usize = 3;

/// A request of one caller.
#[derive(Debug)]
pub(super) struct CallerRequest {
    token: &'static str,
    target: String,
    accept: &'static str,
}

impl CallerRequest {
    pub(super) fn random(random: &mut Random) -> Self {
        let (token, _) = random.one_of(&CALLERS);
        let path = match random.below(4) {
            0 => {
                let namespace = random.one_of(&["a", "b", "none"]);
                format!("/apis/projectcalico.org/v3/namespaces/{namespace}/networkpolicies")
            }
            _ => POLICIES.to_owned(),
        };
        let mut parameters = Vec::new();
        match random.below(6) {
            0 => parameters.push("labelSelector=owner%3Dalice".to_owned()),
            1 => parameters.push(format!(
                "fieldSelector=metadata.name%3Dp{}",
                random.below(40)
            )),
            2 => parameters.push("labelSelector=tier+notin+(default)".to_owned()),
            _ => {}
        }
        let is_watch = random.one_in(3);
        let accept = match is_watch {
            true => random.one_of(&["application/json", METADATA_EVENT, TABLE]),
            false => random.one_of(&["application/json", METADATA, TABLE]),
        };
        match (is_watch, random.below(3)) {
            (true, 0) => parameters.push(
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".to_owned(),
            ),
            (true, _) => parameters.push("watch=1&timeoutSeconds=1".to_owned()),
            (false, 0) => parameters.push(format!("limit={}", 1 + random.below(9))),
            (false, 1) => parameters.push("resourceVersion=0".to_owned()),
            (false, _) => {}
        }
        let name = random.below(40);
        match random.one_in(8) {
            true => Self {
                token,
                target: format!(
                    "/apis/projectcalico.org/v3/namespaces/{}/networkpolicies/p{name}",
                    ["a", "b", "c"][usize::try_from(name % 3).unwrap()]
                ),
                accept: "application/json",
            },
            false => Self {
                token,
                target: format!("{path}?{}", parameters.join("&")),
                accept,
            },
        }
    }
}

/// What a comparison has found.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) differences: usize,
    pub(super) codes: BTreeSet<u16>,
    last: String,
}

impl Comparison {
    pub(super) async fn compare(
        &mut self,
        stage: &AggregatedStage,
        gateway: SocketAddr,
        request: &CallerRequest,
    ) {
        let mut target = request.target.clone();
        for _ in 0..PAGES_MAX {
            let sent = (target.as_str(), request.accept);
            let through = stage.read(gateway, request.token, sent);
            let direct = stage.read(stage.server_address(), request.token, sent);
            let (through, direct) = tokio::join!(through, direct);
            self.codes.insert(direct.status().as_u16());
            if (through.status(), through.body()) != (direct.status(), direct.body()) {
                self.differences += 1;
                self.last = format!("{request:?}\nthrough {through:?}\ndirect {direct:?}");
            }
            let list: Value = serde_json::from_slice(direct.body()).unwrap_or_default();
            match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => {
                    target = format!("{}&continue={token}", request.target);
                }
                _ => return,
            }
        }
    }

    #[track_caller]
    pub(super) fn assert_equal(&self) {
        assert_eq!(self.differences, 0, "{}", self.last);
    }
}
