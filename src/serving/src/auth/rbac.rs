//! Kubernetes RBAC: which rules apply to a user, and which accesses they allow. Decides as the API server's own RBAC authorizer does, with
//! the same reasons.
//!
//! Roles only allow. An access that no role allows may still be allowed by another authorizer of the API server.

mod bindings;

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use self::bindings::{Binding, Bindings};

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

/// The roles and bindings of the cluster and of all namespaces. Two policies are equal if they have the same of both, whatever metadata
/// these have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RbacPolicy {
    /// Rules by namespace and name of the role; a cluster role has an empty namespace. No namespace is without roles.
    roles: HashMap<String, HashMap<String, Vec<PolicyRule>>>,
    /// Bindings by namespace; cluster role bindings have an empty namespace. No namespace is without bindings.
    bindings: HashMap<String, Bindings>,
}

impl RbacPolicy {
    /// Adds a cluster role, or replaces its previous state. Returns false if its rules were the same before.
    pub fn put_cluster_role(&mut self, role: ClusterRole) -> bool {
        let name = role.metadata.name.unwrap_or_default();
        self.put_rules(String::new(), name, role.rules.unwrap_or_default())
    }

    /// Adds a role, or replaces its previous state. Returns false if its rules were the same before.
    pub fn put_role(&mut self, role: Role) -> bool {
        let namespace = role.metadata.namespace.unwrap_or_default();
        let name = role.metadata.name.unwrap_or_default();
        self.put_rules(namespace, name, role.rules.unwrap_or_default())
    }

    /// Adds a cluster role binding, or replaces its previous state. Returns false if its role and subjects were the same before.
    pub fn put_cluster_role_binding(&mut self, binding: ClusterRoleBinding) -> bool {
        let content = Binding {
            name: binding.metadata.name.unwrap_or_default(),
            role: binding.role_ref,
            subjects: binding.subjects.unwrap_or_default(),
        };
        self.put_binding(String::new(), content)
    }

    /// Adds a role binding, or replaces its previous state. Returns false if its role and subjects were the same before.
    pub fn put_role_binding(&mut self, binding: RoleBinding) -> bool {
        let content = Binding {
            name: binding.metadata.name.unwrap_or_default(),
            role: binding.role_ref,
            subjects: binding.subjects.unwrap_or_default(),
        };
        self.put_binding(binding.metadata.namespace.unwrap_or_default(), content)
    }

    fn put_rules(&mut self, namespace: String, name: String, rules: Vec<PolicyRule>) -> bool {
        let roles = self.roles.entry(namespace).or_default();
        if roles.get(&name) == Some(&rules) {
            return false;
        }
        roles.insert(name, rules);
        true
    }

    fn put_binding(&mut self, namespace: String, binding: Binding) -> bool {
        let bindings = self.bindings.entry(namespace.clone()).or_default();
        bindings.put(&namespace, binding)
    }

    /// Removes a role; the namespace of a cluster role is empty. Returns false if there is no such role.
    pub fn remove_role(&mut self, namespace: &str, name: &str) -> bool {
        let Some(roles) = self.roles.get_mut(namespace) else {
            return false;
        };
        let is_removed = roles.remove(name).is_some();
        if roles.is_empty() {
            self.roles.remove(namespace);
        }
        is_removed
    }

    /// Removes a binding; the namespace of a cluster role binding is empty. Returns false if there is no such binding.
    pub fn remove_binding(&mut self, namespace: &str, name: &str) -> bool {
        let Some(bindings) = self.bindings.get_mut(namespace) else {
            return false;
        };
        let is_removed = bindings.remove(namespace, name);
        if bindings.is_empty() {
            self.bindings.remove(namespace);
        }
        is_removed
    }

    /// Decides whether the roles allow a user's access, and why.
    #[must_use]
    pub fn decide(&self, user: &User, access: &Access) -> RbacDecision {
        let mut missing = Vec::new();
        for (scope, bindings) in self.scopes(access) {
            for binding in bindings.sorted(user) {
                match self.rules(scope, &binding.role) {
                    None => push_once(&mut missing, not_found(&binding.role)),
                    Some(rules) if rules.iter().any(|rule| allows(rule, access)) => {
                        return RbacDecision::Allowed(allowed_by(scope, binding, user));
                    }
                    Some(_) => {}
                }
            }
        }
        RbacDecision::NotAllowed(reason(&missing))
    }

    /// Whether the roles allow a user's access. As [`decide`](Self::decide), without the cost of a reason.
    #[must_use]
    pub fn is_allowed(&self, user: &User, access: &Access) -> bool {
        self.scopes(access).any(|(scope, bindings)| {
            bindings
                .applying_to(user)
                .filter_map(|binding| self.rules(scope, &binding.role))
                .flatten()
                .any(|rule| allows(rule, access))
        })
    }

    /// The bindings that count for an access, by namespace: those of the cluster, and those of the namespace if it has one.
    fn scopes<'a>(&'a self, access: &'a Access) -> impl Iterator<Item = (&'a str, &'a Bindings)> {
        let namespace = match access {
            Access::Resource(resource) => resource.namespace.as_str(),
            Access::Path { .. } => "",
        };
        let scopes = [""]
            .into_iter()
            .chain(Some(namespace).filter(|one| !one.is_empty()));
        scopes.filter_map(|scope| Some((scope, self.bindings.get(scope)?)))
    }

    /// The rules of the role that a binding in this namespace refers to; `None` if the role does not exist.
    fn rules(&self, scope: &str, role: &RoleRef) -> Option<&[PolicyRule]> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            // A cluster role binding cannot refer to a role of a namespace.
            "Role" if !scope.is_empty() => scope,
            _ => return None,
        };
        let rules = self.roles.get(namespace)?.get(&role.name)?;
        Some(rules.as_slice())
    }
}

fn allows(rule: &PolicyRule, access: &Access) -> bool {
    match access {
        // The resource comes first: most rules of a role are for other resources, and many have the same verbs.
        Access::Resource(asked) => {
            has_resource(rule.resources.as_deref().unwrap_or_default(), asked)
                && has(Some(&rule.verbs), &asked.verb)
                && has(rule.api_groups.as_ref(), &asked.group)
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
    resources.iter().any(|one| {
        if asked.subresource.is_empty() {
            return one == "*" || *one == asked.resource;
        }
        one == "*"
            || one.split_once('/').is_some_and(|(resource, subresource)| {
                (resource == "*" || resource == asked.resource) && subresource == asked.subresource
            })
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
fn allowed_by(scope: &str, binding: &Binding, user: &User) -> String {
    let subject = binding
        .subject(scope, user)
        .map_or_else(String::new, |subject| subject_text(scope, subject));
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

fn subject_text(scope: &str, subject: &Subject) -> String {
    let own = subject.namespace.as_deref().filter(|one| !one.is_empty());
    match (subject.kind.as_str(), own) {
        ("ServiceAccount", own) => {
            let name = format!("{}/{}", subject.name, own.unwrap_or(scope));
            format!("ServiceAccount {}", quoted(&name))
        }
        (kind, _) => format!("{kind} {}", quoted(&subject.name)),
    }
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
