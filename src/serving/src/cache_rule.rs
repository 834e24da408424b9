//! Decides whether a resource may be cached: one rule for all of its paths through the gateway (decision 59).
//!
//! kube-apiserver never filters a list by caller, so one copy of what it stores can serve every caller who may list it. A server behind an
//! APIService may filter, and no SubjectAccessReview tells what a caller would get from it. Its resources are forwarded.

use std::fmt;

use serde::Deserialize;

use crate::config::CacheLists;
use crate::resource::Gvr;
use crate::resource::groups::is_built_in;

/// The resource that says who serves each group and version.
#[must_use]
pub fn api_services() -> Gvr {
    Gvr::new("apiregistration.k8s.io", "v1", "apiservices")
}

/// The name of the APIService of a resource's group and version.
#[must_use]
pub fn api_service_name(gvr: &Gvr) -> String {
    format!("{}.{}", gvr.version, gvr.group)
}

/// Whether each response that a cache of the resource is filled from has to be proven to be kube-apiserver's: not of built-in groups, and
/// not where the operator asserts that it does not matter.
#[must_use]
pub fn must_prove_origin(gvr: &Gvr, lists: &CacheLists) -> bool {
    !is_built_in(&gvr.group) && !lists.name_group_of(gvr)
}

/// Who serves a group and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOrigin {
    /// kube-apiserver itself, from its own storage.
    Local,
    /// A service, as `namespace/name`.
    Service(Box<str>),
    /// No APIService names it, and it is no built-in group.
    Unlisted,
}

/// An APIService, as far as the rule reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiService {
    group: Box<str>,
    version: Box<str>,
    origin: GroupOrigin,
}

/// All APIServices of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiServices(Vec<ApiService>);

/// What the gateway knows of the APIServices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServiceKnowledge {
    /// They were not read yet.
    Unread,
    /// They cannot be read.
    Unreadable {
        /// Why.
        reason: String,
        /// What was known before, if anything was: who was a service's is not taken to be kube-apiserver's.
        last: Option<ApiServices>,
    },
    /// They were read, and are followed.
    Known(ApiServices),
}

/// Why a resource is not cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The settings exclude it.
    Excluded,
    /// Events are never cached.
    Events,
    /// This service serves it, which may filter lists by caller.
    Service(Box<str>),
    /// No APIService names its group and version.
    Unlisted,
    /// Who serves it is not known, because the APIServices were not or cannot be read.
    Unknown,
}

/// Whether a resource may be cached: what kube-apiserver stores itself, and what the operator names, which asserts that every caller gets
/// the same list.
///
/// # Errors
/// Why it is forwarded instead.
pub fn may_cache(
    gvr: &Gvr,
    lists: &CacheLists,
    known: &ApiServiceKnowledge,
) -> Result<(), ForwardReason> {
    if !lists.allow(gvr) {
        return Err(ForwardReason::Excluded);
    }
    if gvr.is_events() {
        return Err(ForwardReason::Events);
    }
    if lists.name_group_of(gvr) {
        return Ok(());
    }
    let origin = known.last().map(|services| services.origin(gvr));
    let is_known = matches!(known, ApiServiceKnowledge::Known(_));
    match origin {
        Some(GroupOrigin::Service(service)) => Err(ForwardReason::Service(service)),
        Some(GroupOrigin::Local) if is_known => Ok(()),
        Some(GroupOrigin::Unlisted) if is_known => Err(ForwardReason::Unlisted),
        Some(GroupOrigin::Local | GroupOrigin::Unlisted) | None => is_built_in(&gvr.group)
            .then_some(())
            .ok_or(ForwardReason::Unknown),
    }
}

/// Whether a cache that there is already may be kept: as [`may_cache`], and while the APIServices cannot be read what kube-apiserver stored
/// when they were read last. Each response that fills the cache is proven by itself.
#[must_use]
pub fn may_keep(gvr: &Gvr, lists: &CacheLists, known: &ApiServiceKnowledge) -> bool {
    match may_cache(gvr, lists, known) {
        Ok(()) => true,
        Err(ForwardReason::Unknown) => known
            .last()
            .is_some_and(|services| services.origin(gvr) == GroupOrigin::Local),
        Err(_) => false,
    }
}

impl ApiServices {
    /// Adds an APIService, or replaces the one of the same group and version.
    pub fn put(&mut self, service: ApiService) {
        match self.position(&service.group, &service.version) {
            Ok(at) => self.0[at] = service,
            Err(at) => self.0.insert(at, service),
        }
    }

    /// Removes the APIService of the same group and version.
    pub fn remove(&mut self, service: &ApiService) {
        if let Ok(at) = self.position(&service.group, &service.version) {
            self.0.remove(at);
        }
    }

    /// Who serves a resource. The delegates of kube-apiserver answer for its own groups while they have no APIService.
    #[must_use]
    pub fn origin(&self, gvr: &Gvr) -> GroupOrigin {
        match self.position(&gvr.group, &gvr.version) {
            Ok(at) => self.0[at].origin.clone(),
            Err(_) if is_built_in(&gvr.group) => GroupOrigin::Local,
            Err(_) => GroupOrigin::Unlisted,
        }
    }

    /// The service that serves a resource, as `namespace/name`.
    #[must_use]
    pub fn service(&self, gvr: &Gvr) -> Option<Box<str>> {
        match self.origin(gvr) {
            GroupOrigin::Service(service) => Some(service),
            GroupOrigin::Local | GroupOrigin::Unlisted => None,
        }
    }

    /// The held APIService of the same group and version as this one, if it names a service.
    #[must_use]
    pub fn service_like(&self, one: &ApiService) -> Option<&ApiService> {
        let at = self.position(&one.group, &one.version).ok()?;
        Some(&self.0[at]).filter(|held| matches!(held.origin, GroupOrigin::Service(_)))
    }

    /// Whether a service serves the group and version of this APIService.
    #[must_use]
    pub fn has_service(&self, one: &ApiService) -> bool {
        self.service_like(one).is_some()
    }

    /// The services' APIServices whose groups and versions no service serves `later`.
    pub fn departed<'a>(&'a self, later: &Self) -> impl Iterator<Item = &'a ApiService> {
        self.0.iter().filter(|one| {
            let then = later.position(&one.group, &one.version);
            let then = then.ok().map(|at| &later.0[at].origin);
            matches!(one.origin, GroupOrigin::Service(_))
                && !matches!(then, Some(GroupOrigin::Service(_)))
        })
    }

    /// The groups and versions that a service serves, as `group/version`, each with its service.
    pub fn aggregated(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().filter_map(|service| match &service.origin {
            GroupOrigin::Service(name) => {
                Some((format!("{}/{}", service.group, service.version), &**name))
            }
            GroupOrigin::Local | GroupOrigin::Unlisted => None,
        })
    }

    fn position(&self, group: &str, version: &str) -> Result<usize, usize> {
        self.0
            .binary_search_by(|one| (&*one.group, &*one.version).cmp(&(group, version)))
    }
}

/// From a list of them.
impl<'de> Deserialize<'de> for ApiServices {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ApiServiceList { items } = ApiServiceList::deserialize(deserializer)?;
        Ok(items.into_iter().collect())
    }
}

#[derive(Deserialize)]
struct ApiServiceList {
    items: Vec<ApiService>,
}

impl FromIterator<ApiService> for ApiServices {
    fn from_iter<I: IntoIterator<Item = ApiService>>(services: I) -> Self {
        let mut all = Self::default();
        services.into_iter().for_each(|service| all.put(service));
        all
    }
}

impl ApiService {
    /// Reads an APIService of this name, which is `version.group`. If the rest is of an unknown form, it may be a service's.
    #[must_use]
    pub fn read(name: &str, json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_else(|_| {
            let (version, group) = name.split_once('.').unwrap_or((name, ""));
            Self {
                group: group.into(),
                version: version.into(),
                origin: GroupOrigin::Service("unknown".into()),
            }
        })
    }
}

impl<'de> Deserialize<'de> for ApiService {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ApiServiceObject { spec } = ApiServiceObject::deserialize(deserializer)?;
        Ok(Self {
            group: spec.group,
            version: spec.version,
            origin: match spec.service {
                None => GroupOrigin::Local,
                Some(ServiceReference { namespace, name }) => {
                    GroupOrigin::Service(format!("{namespace}/{name}").into())
                }
            },
        })
    }
}

#[derive(Deserialize)]
struct ApiServiceObject {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    /// Absent for the core group.
    #[serde(default)]
    group: Box<str>,
    version: Box<str>,
    service: Option<ServiceReference>,
}

#[derive(Deserialize)]
struct ServiceReference {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

impl ApiServiceKnowledge {
    /// The APIServices as they are known, or as they were known last.
    #[must_use]
    pub const fn last(&self) -> Option<&ApiServices> {
        match self {
            Self::Known(services) => Some(services),
            Self::Unreadable { last, .. } => last.as_ref(),
            Self::Unread => None,
        }
    }

    /// What is said of the APIServices where a person looks; `None` while they are known.
    #[must_use]
    pub fn limitation(&self) -> Option<String> {
        let what = "only built-in groups and the resources that --cache-resources names are cached";
        match self {
            Self::Known(_) => None,
            Self::Unread => Some(format!("the APIServices were not read yet: {what}")),
            Self::Unreadable { reason, .. } => {
                Some(format!("the APIServices cannot be read ({reason}): {what}"))
            }
        }
    }
}

impl fmt::Display for ForwardReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded => {
                f.write_str("excluded by --cache-resources or --passthrough-resources")
            }
            Self::Events => f.write_str("events are never cached"),
            Self::Service(service) => write!(
                f,
                "served by the service {service}, which may show each caller something else"
            ),
            Self::Unlisted => f.write_str("no APIService names its group and version"),
            Self::Unknown => f.write_str("who serves it is unknown: the APIServices are not read"),
        }
    }
}

#[cfg(test)]
mod tests;
