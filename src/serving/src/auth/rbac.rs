//! Kubernetes RBAC: which rules apply to a user, and which accesses they allow. Decides as the API server's own RBAC authorizer does, with
//! the same reasons.
//!
//! Roles only allow. An access that no role allows may still be allowed by another authorizer of the API server.

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use super::access::{Access, ResourceAccess};
use super::user::User;
use crate::resource::quoted;

/// The decision about an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RbacDecision {
    /// The access is allowed. The reason names the binding.
    Allowed(String),
    /// No role allows the access. The reason names roles that bindings refer to and that do not exist; empty if there are none.
    NotAllowed(String),
}

impl RbacDecision {
    /// Whether the access is allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

/// The roles and bindings of the cluster and of all namespaces.
#[derive(Clone, Debug, Default)]
pub struct RbacPolicy {
    /// Rules by namespace and name of the role; a cluster role has an empty namespace.
    roles: HashMap<(String, String), Vec<PolicyRule>>,
    /// Bindings by namespace, sorted by name; cluster role bindings have an empty namespace.
    bindings: HashMap<String, Vec<Binding>>,
}

#[derive(Clone, Debug)]
struct Binding {
    name: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

impl RbacPolicy {
    /// Adds a cluster role, or replaces its previous state.
    pub fn put_cluster_role(&mut self, role: ClusterRole) {
        let name = role.metadata.name.unwrap_or_default();
        let rules = role.rules.unwrap_or_default();
        self.roles.insert((String::new(), name), rules);
    }

    /// Adds a role, or replaces its previous state.
    pub fn put_role(&mut self, role: Role) {
        let namespace = role.metadata.namespace.unwrap_or_default();
        let name = role.metadata.name.unwrap_or_default();
        let rules = role.rules.unwrap_or_default();
        self.roles.insert((namespace, name), rules);
    }

    /// Adds a cluster role binding, or replaces its previous state.
    pub fn put_cluster_role_binding(&mut self, binding: ClusterRoleBinding) {
        let name = binding.metadata.name.unwrap_or_default();
        let subjects = binding.subjects.unwrap_or_default();
        self.put_binding(String::new(), name, binding.role_ref, subjects);
    }

    /// Adds a role binding, or replaces its previous state.
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
        // Sorted by name, so that the same binding is named in the reason each time.
        match bindings.binary_search_by(|one| one.name.cmp(&binding.name)) {
            Ok(at) => bindings[at] = binding,
            Err(at) => bindings.insert(at, binding),
        }
    }

    /// Removes a role; the namespace of a cluster role is empty.
    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Removes a binding; the namespace of a cluster role binding is empty.
    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        if let Some(bindings) = self.bindings.get_mut(namespace) {
            bindings.retain(|one| one.name != name);
        }
    }

    /// Decides whether the roles allow a user's access.
    #[must_use]
    pub fn decide(&self, user: &User, access: &Access) -> RbacDecision {
        let namespace = match access {
            Access::Resource(resource) => resource.namespace.as_str(),
            Access::Path { .. } => "",
        };
        let mut missing = Vec::new();
        let scopes = [""]
            .into_iter()
            .chain(Some(namespace).filter(|one| !one.is_empty()));
        for scope in scopes {
            for binding in self.bindings.get(scope).into_iter().flatten() {
                let Some(subject) = binding
                    .subjects
                    .iter()
                    .find(|one| applies_to(one, user, scope))
                else {
                    continue;
                };
                match self.rules(scope, &binding.role) {
                    None => push_once(&mut missing, not_found(&binding.role)),
                    Some(rules) if rules.iter().any(|rule| allows(rule, access)) => {
                        return RbacDecision::Allowed(allowed_by(scope, binding, subject));
                    }
                    Some(_) => {}
                }
            }
        }
        RbacDecision::NotAllowed(reason(&missing))
    }

    /// The rules of the role that a binding in this namespace refers to; `None` if the role does not exist.
    fn rules(&self, scope: &str, role: &RoleRef) -> Option<&[PolicyRule]> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            // A cluster role binding cannot refer to a role of a namespace.
            "Role" if !scope.is_empty() => scope,
            _ => return None,
        };
        let key = (namespace.to_owned(), role.name.clone());
        self.roles.get(&key).map(Vec::as_slice)
    }
}

/// Whether a subject of a binding in this namespace is the user or one of its groups.
fn applies_to(subject: &Subject, user: &User, namespace: &str) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.is_in(&subject.name),
        "ServiceAccount" => {
            let namespace = subject
                .namespace
                .as_deref()
                .filter(|one| !one.is_empty())
                .unwrap_or(namespace);
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

/// Whether the values contain the one that is asked for, or `*`.
fn has(values: Option<&Vec<String>>, asked: &str) -> bool {
    values
        .into_iter()
        .flatten()
        .any(|value| value == "*" || value == asked)
}

/// Whether one of a rule's resources matches: each is of the form `pods`, `pods/log`, `*/log` or `*`.
fn has_resource(resources: &[String], asked: &ResourceAccess) -> bool {
    resources.iter().any(|one| match one.split_once('/') {
        None if one == "*" => true,
        None => *one == asked.resource && asked.subresource.is_empty(),
        Some((resource, subresource)) => {
            (resource == "*" || resource == asked.resource)
                && !asked.subresource.is_empty()
                && subresource == asked.subresource
        }
    })
}

/// No names mean any. A whole collection has no name, so a rule with names does not allow it.
fn has_name(names: &[String], asked: &ResourceAccess) -> bool {
    names.is_empty() || names.contains(&asked.name)
}

/// A path, or the beginning of some before a `*`.
/// `/version` covers only that path; `/healthz/*` covers every path that begins with `/healthz/`.
fn covers(url: &str, path: &str) -> bool {
    url == path
        || url
            .ends_with('*')
            .then(|| url.trim_end_matches('*'))
            .is_some_and(|start| path.starts_with(start))
}

/// The API server's reason for an access that a binding allows.
fn allowed_by(scope: &str, binding: &Binding, subject: &Subject) -> String {
    let own = subject.namespace.as_deref().filter(|one| !one.is_empty());
    let subject = match (subject.kind.as_str(), own) {
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
    format!("RBAC: allowed by {by} of {kind} {role} to {subject}")
}

/// The API server's message for a role that a binding refers to and that does not exist.
fn not_found(role: &RoleRef) -> String {
    let kind = role.kind.to_lowercase();
    format!(
        "{kind}.rbac.authorization.k8s.io {} not found",
        quoted(&role.name)
    )
}

fn push_once(messages: &mut Vec<String>, message: String) {
    if !messages.contains(&message) {
        messages.push(message);
    }
}

/// The API server's reason for an access that no role allows, from the messages about missing roles.
fn reason(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests;
