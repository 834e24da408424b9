//! Kubernetes' roles: which rules apply to a user, and what they allow. As the API server's own authorizer decides, with its reasons.
//!
//! Roles only ever allow. Whatever none of them allows is left to other authorizers.

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::access::{Access, ResourceAccess};
use super::user::User;
use crate::resource::quoted;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RbacDecision {
    /// It may be done; says by which binding.
    Allowed(String),
    /// No role says so; says which roles are missing, if any.
    NotAllowed(String),
}

impl RbacDecision {
    /// Whether it may be done.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// Roles and bindings at one time.
#[derive(Clone, Debug, Default)]
pub struct RbacPolicy {
    /// By namespace and name; of cluster roles the namespace is empty.
    roles: HashMap<(String, String), Vec<PolicyRule>>,
    /// By namespace; those of the whole cluster under the empty one.
    bindings: HashMap<String, Vec<Binding>>,
}

#[derive(Clone, Debug)]
struct Binding {
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

impl RbacPolicy {
    /// Takes a cluster role, or its newer state.
    pub fn put_cluster_role(&mut self, role: ClusterRole) {
        let name = role.metadata.name.unwrap_or_default();
        let rules = role.rules.unwrap_or_default();
        self.roles.insert((String::new(), name), rules);
    }

    /// Takes a role of a namespace, or its newer state.
    pub fn put_role(&mut self, role: Role) {
        let key = |field: Option<String>| field.unwrap_or_default();
        let (namespace, name) = (key(role.metadata.namespace), key(role.metadata.name));
        let rules = role.rules.unwrap_or_default();
        self.roles.insert((namespace, name), rules);
    }

    /// Takes a binding of the whole cluster, or its newer state.
    pub fn put_cluster_role_binding(&mut self, binding: ClusterRoleBinding) {
        let name = binding.metadata.name.unwrap_or_default();
        let subjects = binding.subjects.unwrap_or_default();
        self.put_binding(String::new(), name, binding.role_ref, subjects);
    }

    /// Takes a binding of a namespace, or its newer state.
    pub fn put_role_binding(&mut self, binding: RoleBinding) {
        let namespace = binding.metadata.namespace.unwrap_or_default();
        let name = binding.metadata.name.unwrap_or_default();
        let subjects = binding.subjects.unwrap_or_default();
        self.put_binding(namespace, name, binding.role_ref, subjects);
    }

    fn put_binding(
        &mut self,
        namespace: String,
        name: String,
        role: RoleRef,
        subjects: Vec<Subject>,
    ) {
        let binding = Binding {
            name,
            role,
            subjects,
        };
        let bindings = self.bindings.entry(namespace).or_default();
        // In the order of their names, so that the reason is the same each time.
        match bindings.binary_search_by(|one| one.name.cmp(&binding.name)) {
            Ok(at) => bindings[at] = binding,
            Err(at) => bindings.insert(at, binding),
        }
    }

    /// Forgets a role; the namespace of a cluster role is empty.
    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Forgets a binding; the namespace of a binding of the whole cluster is empty.
    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        if let Some(bindings) = self.bindings.get_mut(namespace) {
            bindings.retain(|one| one.name != name);
        }
    }

    /// Whether a user may do something.
    #[must_use]
    pub fn decide(&self, user: &User, access: &Access) -> RbacDecision {
        let namespace = match access {
            Access::Resource(asked) => asked.namespace.as_str(),
            Access::Path { .. } => "",
        };
        let mut missing = Vec::new();
        let scopes = [""]
            .into_iter()
            .chain(Some(namespace).filter(|one| !one.is_empty()));
        for scope in scopes {
            for binding in self.bindings.get(scope).into_iter().flatten() {
                let mut subjects = binding.subjects.iter();
                let Some(subject) = subjects.find(|one| is_meant(user, one, scope)) else {
                    continue;
                };
                match self.rules(scope, &binding.role) {
                    None => note(&mut missing, absent(&binding.role)),
                    Some(rules) if rules.iter().any(|rule| allows(rule, access)) => {
                        return RbacDecision::Allowed(allowed_by(scope, binding, subject));
                    }
                    Some(_) => {}
                }
            }
        }
        RbacDecision::NotAllowed(reason(&missing))
    }

    fn rules(&self, scope: &str, role: &RoleRef) -> Option<&[PolicyRule]> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            // A binding of the whole cluster cannot refer to a role of a namespace.
            "Role" if !scope.is_empty() => scope,
            _ => return None,
        };
        let key = (namespace.to_owned(), role.name.clone());
        self.roles.get(&key).map(Vec::as_slice)
    }
}

/// Whether a subject of a binding in this namespace means the user.
fn is_meant(user: &User, subject: &Subject, namespace: &str) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.is_in(&subject.name),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|one| !one.is_empty());
            let namespace = own.unwrap_or(namespace);
            !namespace.is_empty() && user.service_account() == Some((namespace, &subject.name))
        }
        _ => false,
    }
}

fn allows(rule: &PolicyRule, access: &Access) -> bool {
    match access {
        Access::Resource(asked) => {
            has(Some(&rule.verbs), &asked.verb)
                && has(rule.api_groups.as_ref(), &asked.group)
                && has_resource(rule.resources.as_deref().unwrap_or_default(), asked)
                && has_name(rule.resource_names.as_deref().unwrap_or_default(), asked)
        }
        Access::Path { verb, path } => {
            let mut urls = rule.non_resource_urls.iter().flatten();
            has(Some(&rule.verbs), verb) && urls.any(|url| covers(url, path))
        }
    }
}

/// Whether a word is among these, or all are.
fn has(words: Option<&Vec<String>>, asked: &str) -> bool {
    let mut words = words.into_iter().flatten();
    words.any(|word| word == "*" || word == asked)
}

/// `pods`, `pods/log`, `*/log` or `*`.
fn has_resource(resources: &[String], asked: &ResourceAccess) -> bool {
    let is_it = |part: Option<&str>| match part {
        None => asked.subresource.is_empty(),
        Some(part) => !asked.subresource.is_empty() && part == asked.subresource,
    };
    resources.iter().any(|one| {
        if one == "*" {
            return true;
        }
        let (resource, part) = match one.split_once('/') {
            Some((resource, part)) => (resource, Some(part)),
            None => (one.as_str(), None),
        };
        let is_any = resource == "*" && part.is_some();
        (is_any || resource == asked.resource) && is_it(part)
    })
}

/// No names mean any. A whole collection has no name, so a rule with names does not allow it.
fn has_name(names: &[String], asked: &ResourceAccess) -> bool {
    names.is_empty() || names.contains(&asked.name)
}

/// A path, or the beginning of some before a `*`.
fn covers(url: &str, path: &str) -> bool {
    url == path
        || url
            .ends_with('*')
            .then(|| url.trim_end_matches('*'))
            .is_some_and(|start| path.starts_with(start))
}

/// In the API server's words.
fn allowed_by(scope: &str, binding: &Binding, subject: &Subject) -> String {
    let own = subject.namespace.as_deref().filter(|one| !one.is_empty());
    let who = match (subject.kind.as_str(), own) {
        ("ServiceAccount", own) => {
            let name = format!("{}/{}", subject.name, own.unwrap_or(scope));
            format!("ServiceAccount {}", quoted(&name))
        }
        (kind, _) => format!("{kind} {}", quoted(&subject.name)),
    };
    let by = match scope {
        "" => format!("ClusterRoleBinding {}", quoted(&binding.name)),
        namespace => {
            let name = format!("{}/{namespace}", binding.name);
            format!("RoleBinding {}", quoted(&name))
        }
    };
    let (kind, role) = (&binding.role.kind, quoted(&binding.role.name));
    format!("RBAC: allowed by {by} of {kind} {role} to {who}")
}

fn absent(role: &RoleRef) -> String {
    let kind = role.kind.to_lowercase();
    format!(
        "{kind}.rbac.authorization.k8s.io {} not found",
        quoted(&role.name)
    )
}

fn note(missing: &mut Vec<String>, fault: String) {
    if !missing.contains(&fault) {
        missing.push(fault);
    }
}

fn reason(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests;
