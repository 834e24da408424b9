//! Role-based access control: which rules apply to a user, and whether they allow what it asks for, with kube-apiserver's reasons.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::user::User;
use super::{Access, Decision, ResourceAccess};
use crate::apiserver::object::{Event, EventType};
use crate::apiserver::store::Store;

/// The API group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// All roles and bindings.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// By namespace, empty for cluster roles, and name.
    roles: HashMap<(String, String), Vec<Rule>>,
    /// By namespace, empty for cluster role bindings, and name, so that reasons name the same binding each time.
    bindings: BTreeMap<(String, String), Binding>,
}

#[derive(Debug, Default, Deserialize)]
struct Role {
    rules: Option<Vec<Rule>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::apiserver) struct Rule {
    pub(in crate::apiserver) verbs: Vec<String>,
    pub(in crate::apiserver) api_groups: Vec<String>,
    pub(in crate::apiserver) resources: Vec<String>,
    pub(in crate::apiserver) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub(in crate::apiserver) paths: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
    subjects: Option<Vec<Subject>>,
}

#[derive(Clone, Debug, Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

/// Keeps a policy as the store's roles and bindings are. A write is in force before it is answered.
pub(super) fn follow(store: &Store, policy: Arc<RwLock<Policy>>) {
    let catalogue = Arc::clone(store.catalogue());
    store.observe(move |event| {
        let kind = catalogue.kind(event.kind_index);
        if kind.group == GROUP {
            policy.write().apply(&kind.plural, event);
        }
    });
}

impl Policy {
    /// What cannot be parsed allows nothing.
    fn apply(&mut self, plural: &str, event: &Event) {
        let key = &event.object.key;
        let key = (key.namespace().to_owned(), key.name().to_owned());
        if plural.ends_with("bindings") {
            match parse(event) {
                Some(binding) => drop(self.bindings.insert(key, binding)),
                None => drop(self.bindings.remove(&key)),
            }
        } else {
            match parse::<Role>(event) {
                Some(role) => drop(self.roles.insert(key, role.rules.unwrap_or_default())),
                None => drop(self.roles.remove(&key)),
            }
        }
    }

    pub(super) fn decide(&self, user: &User, access: &Access) -> Decision {
        let namespace = match access {
            Access::Resource(access) => access.namespace.as_str(),
            Access::Path { .. } => "",
        };
        let mut missing: Vec<String> = Vec::new();
        for ((scope, name), binding) in &self.bindings {
            if !scope.is_empty() && scope != namespace {
                continue;
            }
            let mut subjects = binding.subjects.iter().flatten();
            let Some(subject) = subjects.find(|subject| subject.is(user, scope)) else {
                continue;
            };
            match self.rules(scope, &binding.role_ref) {
                Some(rules) if rules.iter().any(|rule| rule.allows(access)) => {
                    let binding_name = match scope.as_str() {
                        "" => format!("ClusterRoleBinding {name:?}"),
                        scope => format!("RoleBinding {:?}", format!("{name}/{scope}")),
                    };
                    let role = &binding.role_ref;
                    return Decision {
                        is_allowed: true,
                        reason: format!(
                            "RBAC: allowed by {binding_name} of {} {:?} to {}",
                            role.kind,
                            role.name,
                            subject.text(scope)
                        ),
                    };
                }
                Some(_) => {}
                None => {
                    let RoleRef { kind, name } = &binding.role_ref;
                    let text = format!("{}.{GROUP} {name:?} not found", kind.to_lowercase());
                    if !missing.contains(&text) {
                        missing.push(text);
                    }
                }
            }
        }
        let reason = match missing.as_slice() {
            [] => String::new(),
            [missing] => format!("RBAC: {missing}"),
            missing => format!("RBAC: [{}]", missing.join(", ")),
        };
        Decision {
            is_allowed: false,
            reason,
        }
    }

    /// All rules of a user in a namespace.
    pub(super) fn rules_of(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let bindings = self.bindings.iter();
        let bindings = bindings.filter(|((scope, _), binding)| {
            let mut subjects = binding.subjects.iter().flatten();
            (scope.is_empty() || scope == namespace)
                && subjects.any(|subject| subject.is(user, scope))
        });
        bindings
            .filter_map(|((scope, _), binding)| self.rules(scope, &binding.role_ref))
            .flatten()
            .cloned()
            .collect()
    }

    fn rules(&self, scope: &str, role: &RoleRef) -> Option<&[Rule]> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            "Role" if !scope.is_empty() => scope,
            _ => return None,
        };
        let key = (namespace.to_owned(), role.name.clone());
        self.roles.get(&key).map(Vec::as_slice)
    }
}

fn parse<T: DeserializeOwned>(event: &Event) -> Option<T> {
    if event.event_type == EventType::Deleted {
        return None;
    }
    serde_json::from_slice(&event.object.json()).ok()
}

impl Subject {
    fn is(&self, user: &User, scope: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let namespace = self.own_namespace(scope);
                !namespace.is_empty() && user.service_account() == Some((namespace, &self.name))
            }
            _ => false,
        }
    }

    fn own_namespace<'a>(&'a self, scope: &'a str) -> &'a str {
        match self.namespace.as_str() {
            "" => scope,
            namespace => namespace,
        }
    }

    fn text(&self, scope: &str) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => {
                let name = format!("{}/{}", self.name, self.own_namespace(scope));
                format!("ServiceAccount {name:?}")
            }
            kind => format!("{kind} {:?}", self.name),
        }
    }
}

impl Rule {
    /// The rules of a server that allows everything.
    pub(super) fn everything() -> Vec<Self> {
        let all = || vec!["*".to_owned()];
        let of_resources = Self {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Self::default()
        };
        let of_paths = Self {
            verbs: all(),
            paths: all(),
            ..Self::default()
        };
        vec![of_resources, of_paths]
    }

    fn allows(&self, access: &Access) -> bool {
        match access {
            Access::Path { verb, path } => {
                let covers = |url: &String| match url.strip_suffix('*') {
                    Some(start) => path.starts_with(start),
                    None => path == url,
                };
                has(&self.verbs, verb) && self.paths.iter().any(covers)
            }
            Access::Resource(access) => {
                has(&self.verbs, &access.verb)
                    && has(&self.api_groups, &access.group)
                    && self
                        .resources
                        .iter()
                        .any(|resource| is_resource(resource, access))
                    && (self.resource_names.is_empty()
                        || self.resource_names.contains(&access.name))
            }
        }
    }
}

fn has(values: &[String], wanted: &str) -> bool {
    values.iter().any(|value| value == "*" || value == wanted)
}

/// Whether a rule's resource covers what is accessed: `pods`, `pods/log`, `*/log` or `*`.
fn is_resource(resource: &str, access: &ResourceAccess) -> bool {
    match resource.split_once('/') {
        _ if resource == "*" => true,
        None => access.subresource.is_empty() && resource == access.resource,
        Some((resource, subresource)) => {
            (resource == "*" || resource == access.resource)
                && !access.subresource.is_empty()
                && subresource == access.subresource
        }
    }
}
