//! The paths below which a gateway hands its caches over to another one (decision 43), and says how many watches it has (decision 52). They
//! belong to no resource, and kube-apiserver serves nothing there.

use serde::{Deserialize, Serialize};

use crate::resource::CacheKey;

/// The path of the index. The path of a cache is this one, a slash, and the cache's [`CacheKey::state_name`].
const PATH: &str = "/kube-fanout/handover";

/// What follows [`PATH`] and a slash in the path of the load. No cache has this name: it has no version.
const LOAD: &str = "load";

/// No gateway has more watches; a larger number is none.
const WATCHES_MAX: u64 = 1 << 24;

/// No cache has a longer name: a plural name, a version and a group are DNS labels and subdomains.
const NAME_LEN_MAX: usize = 512;

/// The media type of a cache that is handed over: a checkpoint (decision 43).
pub const HANDOVER_MEDIA_TYPE: &str = "application/vnd.kube-fanout.checkpoint";

/// What a request for a handover asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandoverTarget {
    /// The names of all caches.
    Index,
    /// The gateway's [`GatewayLoad`].
    Load,
    /// The state of one cache.
    Cache(CacheKey),
    /// Neither.
    Unknown,
}

impl HandoverTarget {
    /// What this path asks for; `None` if it is not about a handover.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        match path.strip_prefix(PATH)? {
            "" => Some(Self::Index),
            rest => {
                let name = rest.strip_prefix('/')?;
                if name == LOAD {
                    return Some(Self::Load);
                }
                let key = CacheKey::of_state_name(name).filter(|_| name.len() <= NAME_LEN_MAX);
                Some(key.map_or(Self::Unknown, Self::Cache))
            }
        }
    }

    /// The path of the request.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Index | Self::Unknown => PATH.to_owned(),
            Self::Load => format!("{PATH}/{LOAD}"),
            Self::Cache(key) => format!("{PATH}/{}", key.state_name()),
        }
    }
}

/// The caches that a gateway can hand over, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverIndex {
    /// The names of the caches.
    caches: Vec<String>,
}

impl HandoverIndex {
    /// The index of these caches.
    #[must_use]
    pub fn new(keys: &[CacheKey]) -> Self {
        Self {
            caches: keys.iter().map(CacheKey::state_name).collect(),
        }
    }

    /// The caches. Names that are none are left out.
    pub fn keys(&self) -> impl Iterator<Item = CacheKey> {
        let names = self.caches.iter();
        names.filter_map(|name| CacheKey::of_state_name(name))
    }
}

/// How much a gateway has to do, as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayLoad {
    /// Number of clients' open watches from memory.
    watches: u64,
    /// Whether it is ready and takes new clients.
    serving: bool,
}

impl GatewayLoad {
    /// The load of a gateway with this many watches.
    #[must_use]
    pub fn new(watches: usize, serving: bool) -> Self {
        Self {
            watches: u64::try_from(watches).unwrap_or(u64::MAX),
            serving,
        }
    }

    /// The number of watches; `None` if the gateway takes no new clients, or if no gateway has so many.
    #[must_use]
    pub fn watches(&self) -> Option<u64> {
        (self.serving && self.watches <= WATCHES_MAX).then_some(self.watches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Encoding, Gvr};

    #[test]
    fn a_path_names_the_index_or_a_cache() {
        let leases = CacheKey {
            gvr: Gvr::new("coordination.k8s.io", "v1", "leases"),
            encoding: Encoding::Protobuf,
        };
        let pods = CacheKey::json(&Gvr::new("", "v1", "pods"));
        for (path, expected) in [
            ("/kube-fanout/handover", HandoverTarget::Index),
            ("/kube-fanout/handover/load", HandoverTarget::Load),
            (
                "/kube-fanout/handover/pods.v1.json",
                HandoverTarget::Cache(pods.clone()),
            ),
            (
                "/kube-fanout/handover/leases.v1.coordination.k8s.io.protobuf",
                HandoverTarget::Cache(leases.clone()),
            ),
        ] {
            assert_eq!(HandoverTarget::parse(path), Some(expected.clone()));
            assert_eq!(expected.path(), path);
        }
        for path in [
            "/",
            "/load/",
            "/pods.v1.yaml",
            "/pods.json",
            "/a/b.v1.json/",
        ] {
            let path = format!("/kube-fanout/handover{path}");
            assert_eq!(HandoverTarget::parse(&path), Some(HandoverTarget::Unknown));
        }
        for path in ["/kube-fanout", "/kube-fanout/handovers", "/api/v1/pods"] {
            assert_eq!(HandoverTarget::parse(path), None);
        }
        let index = HandoverIndex::new(&[pods.clone(), leases.clone()]);
        assert_eq!(index.keys().collect::<Vec<_>>(), [pods, leases]);
    }

    #[test]
    fn only_the_load_of_a_gateway_that_takes_clients_counts() {
        let read = |text: &str| {
            serde_json::from_str(text)
                .ok()
                .map(|load: GatewayLoad| load.watches())
        };
        assert_eq!(read(r#"{"watches":7,"serving":true}"#), Some(Some(7)));
        assert_eq!(read(r#"{"watches":7,"serving":false}"#), Some(None));
        assert_eq!(read(r#"{"watches":16777217,"serving":true}"#), Some(None));
        for text in [
            r#"{"watches":-1,"serving":true}"#,
            r#"{"watches":7}"#,
            "[]",
            "",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let load = GatewayLoad::new(3, true);
        let written = serde_json::to_string(&load).unwrap();
        assert_eq!(read(&written), Some(Some(3)));
    }
}
