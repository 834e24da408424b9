//! The index of bindings by subject against a walk over all bindings, as kube-apiserver does it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Roles and bindings by namespace and name, walked for each decision.
#[derive(Default)]
struct Walk {
    roles: HashMap<(String, String), Vec<PolicyRule>>,
    bindings: BTreeMap<(String, String), (RoleRef, Vec<Subject>)>,
}

impl Walk {
    fn decide(&self, user: &User, access: &Access) -> RbacDecision {
        let namespace = match access {
            Access::Resource(resource) => resource.namespace.as_str(),
            Access::Path { .. } => "",
        };
        let mut missing = Vec::new();
        // Sorted by namespace and name, so those of the cluster come first.
        for ((scope, name), (role, subjects)) in &self.bindings {
            if !scope.is_empty() && scope != namespace {
                continue;
            }
            if !subjects.iter().any(|one| applies_to(one, user, scope)) {
                continue;
            }
            match self.rules(scope, role) {
                None => push_once(&mut missing, not_found(role)),
                Some(rules) if rules.iter().any(|rule| allows(rule, access)) => {
                    let binding = Binding {
                        name: name.clone(),
                        role: role.clone(),
                        subjects: subjects.clone(),
                    };
                    return RbacDecision::Allowed(allowed_by(scope, &binding, user));
                }
                Some(_) => {}
            }
        }
        RbacDecision::NotAllowed(reason(&missing))
    }

    fn rules(&self, scope: &str, role: &RoleRef) -> Option<&Vec<PolicyRule>> {
        let namespace = match role.kind.as_str() {
            "ClusterRole" => "",
            "Role" if !scope.is_empty() => scope,
            _ => return None,
        };
        self.roles.get(&(namespace.to_owned(), role.name.clone()))
    }
}

fn applies_to(subject: &Subject, user: &User, scope: &str) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.is_in(&subject.name),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|one| !one.is_empty());
            let namespace = own.unwrap_or(scope);
            !namespace.is_empty() && user.service_account() == Some((namespace, &subject.name))
        }
        _ => false,
    }
}

/// A change of a role or a binding; no content means that it is removed.
#[derive(Clone, Debug)]
enum Change {
    Role(String, String, Option<Vec<PolicyRule>>),
    Binding(String, String, Option<(RoleRef, Vec<Subject>)>),
}

/// Applies a change to both, and checks that it is reported if it makes a difference.
fn apply(policy: &mut RbacPolicy, walk: &mut Walk, change: Change) -> Result<(), TestCaseError> {
    match change {
        Change::Role(namespace, name, rules) => {
            let is_reported = match rules.clone() {
                None => policy.remove_role(&namespace, &name),
                Some(rules) => put_role(policy, metadata(&namespace, &name), rules),
            };
            let key = (namespace, name);
            let before = match rules.clone() {
                None => walk.roles.remove(&key),
                Some(rules) => walk.roles.insert(key, rules),
            };
            prop_assert_eq!(is_reported, before != rules);
        }
        Change::Binding(namespace, name, content) => {
            let is_reported = match content.clone() {
                None => policy.remove_binding(&namespace, &name),
                Some(content) => put_binding(policy, metadata(&namespace, &name), content),
            };
            let key = (namespace, name);
            let before = match content.clone() {
                None => walk.bindings.remove(&key),
                Some(content) => walk.bindings.insert(key, content),
            };
            prop_assert_eq!(is_reported, before != content);
        }
    }
    Ok(())
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()).filter(|one| !one.is_empty()),
        ..ObjectMeta::default()
    }
}

fn put_role(policy: &mut RbacPolicy, metadata: ObjectMeta, rules: Vec<PolicyRule>) -> bool {
    let rules = Some(rules);
    if metadata.namespace.is_none() {
        return policy.put_cluster_role(ClusterRole {
            metadata,
            rules,
            ..ClusterRole::default()
        });
    }
    policy.put_role(Role { metadata, rules })
}

fn put_binding(
    policy: &mut RbacPolicy,
    metadata: ObjectMeta,
    (role_ref, subjects): (RoleRef, Vec<Subject>),
) -> bool {
    let subjects = Some(subjects);
    if metadata.namespace.is_none() {
        return policy.put_cluster_role_binding(ClusterRoleBinding {
            metadata,
            role_ref,
            subjects,
        });
    }
    policy.put_role_binding(RoleBinding {
        metadata,
        role_ref,
        subjects,
    })
}

fn rule() -> impl Strategy<Value = PolicyRule> {
    let verbs = select(vec!["list", "watch", "*"]);
    let resources = select(vec!["pods", "services", "*"]);
    (verbs, resources, any::<bool>()).prop_map(|(verb, resource, is_path)| {
        let mut rule = PolicyRule {
            verbs: vec![verb.to_owned()],
            ..PolicyRule::default()
        };
        if is_path {
            rule.non_resource_urls = Some(vec!["/version".to_owned()]);
        } else {
            rule.api_groups = Some(vec![String::new()]);
            rule.resources = Some(vec![resource.to_owned()]);
        }
        rule
    })
}

fn subject() -> impl Strategy<Value = Subject> {
    let kinds = select(vec!["User", "Group", "ServiceAccount", "Nobody"]);
    let names = select(vec![
        "ann",
        "bot",
        "dev",
        "b:bot",
        "system:serviceaccount:a:bot",
        "",
    ]);
    let namespaces = select(vec![None, Some(""), Some("a"), Some("b")]);
    (kinds, names, namespaces).prop_map(|(kind, name, namespace)| Subject {
        api_group: None,
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    })
}

fn role_ref() -> impl Strategy<Value = RoleRef> {
    let kinds = select(vec!["ClusterRole", "Role", "Other"]);
    (kinds, select(vec!["r", "s", "t"])).prop_map(|(kind, name)| RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    })
}

fn change() -> impl Strategy<Value = Change> {
    let namespace = || select(vec!["", "a", "b"]).prop_map(str::to_owned);
    let rules = prop::collection::vec(rule(), 0..3);
    let content = (role_ref(), prop::collection::vec(subject(), 0..4));
    let role = (
        namespace(),
        select(vec!["r", "s", "t"]),
        prop::option::of(rules),
    )
        .prop_map(|(namespace, name, rules)| Change::Role(namespace, name.to_owned(), rules));
    let names = select(vec!["b1", "b2", "b3", "b4"]);
    let binding = (namespace(), names, prop::option::weighted(0.8, content)).prop_map(
        |(namespace, name, content)| Change::Binding(namespace, name.to_owned(), content),
    );
    prop_oneof![role, binding]
}

fn questions() -> Vec<(User, Access)> {
    let users = [
        user("ann", &["dev", "ann"]),
        user("ann", &[]),
        user("bot", &["dev", "dev", "bot"]),
        user("system:serviceaccount:a:bot", &["dev"]),
        user("system:serviceaccount:b:bot", &[]),
        user("system:serviceaccount:a:b:bot", &[]),
        user("", &[""]),
    ];
    let accesses = [
        "list - pods",
        "list - pods@a",
        "watch - services@b",
        "list /version",
    ];
    let pairs = users.iter().flat_map(|user| {
        let with = |text: &&str| (user.clone(), access(text));
        accesses.iter().map(with).collect::<Vec<_>>()
    });
    pairs.collect()
}

proptest! {
    #[test]
    fn the_index_decides_as_a_walk_over_all_bindings(changes in prop::collection::vec(change(), 0..40)) {
        let (mut policy, mut walk) = (RbacPolicy::default(), Walk::default());
        for change in changes {
            apply(&mut policy, &mut walk, change)?;
        }
        for (user, access) in questions() {
            let decision = policy.decide(&user, &access);
            prop_assert_eq!(policy.is_allowed(&user, &access), decision.is_allowed());
            prop_assert_eq!(decision, walk.decide(&user, &access));
        }
        // The same roles and bindings make an equal policy, however they came about: nothing that was removed is left.
        let mut rebuilt = RbacPolicy::default();
        for ((namespace, name), rules) in walk.roles {
            put_role(&mut rebuilt, metadata(&namespace, &name), rules);
        }
        for ((namespace, name), content) in walk.bindings {
            put_binding(&mut rebuilt, metadata(&namespace, &name), content);
        }
        prop_assert_eq!(rebuilt, policy);
    }
}
