//! The bindings of one namespace, or of the cluster, found by the users to whom they apply. What they allow is decided elsewhere.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};

use crate::auth::user::{User, service_account_user};

/// A binding of a role to subjects.
#[derive(Debug, PartialEq)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) role: RoleRef,
    pub(super) subjects: Vec<Subject>,
}

/// The bindings of one scope: a namespace, or the cluster, whose scope is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bindings {
    by_name: HashMap<String, Arc<Binding>>,
    /// By user name. Each list is sorted by the names of the bindings and has no duplicates; none is empty.
    users: HashMap<String, Vec<Arc<Binding>>>,
    /// By group, as `users`.
    groups: HashMap<String, Vec<Arc<Binding>>>,
}

/// The name by which a subject's users are found.
enum SubjectKey<'a> {
    User(Cow<'a, str>),
    Group(&'a str),
}

impl Bindings {
    /// Adds a binding, or replaces the one of this name. Returns false if it was the same before.
    pub(super) fn put(&mut self, scope: &str, binding: Binding) -> bool {
        if self
            .by_name
            .get(&binding.name)
            .is_some_and(|old| **old == binding)
        {
            return false;
        }
        self.remove(scope, &binding.name);
        let binding = Arc::new(binding);
        for key in binding.keys(scope) {
            let list = match key {
                SubjectKey::User(name) => self.users.entry(name.into_owned()),
                SubjectKey::Group(name) => self.groups.entry(name.to_owned()),
            };
            insert(list.or_default(), &binding);
        }
        self.by_name.insert(binding.name.clone(), binding);
        true
    }

    /// Removes a binding. Returns false if there is none of this name.
    pub(super) fn remove(&mut self, scope: &str, name: &str) -> bool {
        let Some(binding) = self.by_name.remove(name) else {
            return false;
        };
        for key in binding.keys(scope) {
            match key {
                SubjectKey::User(user) => remove(self.users.entry(user.into_owned()), name),
                SubjectKey::Group(group) => remove(self.groups.entry(group.to_owned()), name),
            }
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The bindings that apply to a user, in no order; those that name the user in several ways come several times.
    pub(super) fn applying_to(&self, user: &User) -> impl Iterator<Item = &Binding> {
        let by_group = user
            .groups
            .iter()
            .filter_map(|group| self.groups.get(group));
        let lists = self.users.get(&user.name).into_iter().chain(by_group);
        lists.flatten().map(|binding| &**binding)
    }

    /// The bindings that apply to a user, each once and sorted by name, so that the same one is named in a reason each time.
    pub(super) fn sorted(&self, user: &User) -> Vec<&Binding> {
        let mut found: Vec<&Binding> = self.applying_to(user).collect();
        found.sort_unstable_by_key(|binding| &binding.name);
        found.dedup_by_key(|binding| &binding.name);
        found
    }
}

impl Binding {
    /// The first subject that is the user or one of its groups.
    pub(super) fn subject(&self, scope: &str, user: &User) -> Option<&Subject> {
        self.subjects
            .iter()
            .find(|subject| match key(subject, scope) {
                Some(SubjectKey::User(name)) => name == user.name,
                Some(SubjectKey::Group(name)) => user.is_in(name),
                None => false,
            })
    }

    fn keys<'a>(&'a self, scope: &'a str) -> impl Iterator<Item = SubjectKey<'a>> {
        self.subjects
            .iter()
            .filter_map(|subject| key(subject, scope))
    }
}

/// `None` if the subject is nobody.
fn key<'a>(subject: &'a Subject, scope: &str) -> Option<SubjectKey<'a>> {
    match subject.kind.as_str() {
        "User" => Some(SubjectKey::User(Cow::Borrowed(&subject.name))),
        "Group" => Some(SubjectKey::Group(&subject.name)),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|one| !one.is_empty());
            let user = service_account_user(own.unwrap_or(scope), &subject.name)?;
            Some(SubjectKey::User(Cow::Owned(user)))
        }
        _ => None,
    }
}

fn insert(list: &mut Vec<Arc<Binding>>, binding: &Arc<Binding>) {
    // `Ok` if the binding names the same user twice.
    if let Err(at) = list.binary_search_by(|one| one.name.cmp(&binding.name)) {
        list.insert(at, Arc::clone(binding));
    }
}

fn remove(entry: Entry<'_, String, Vec<Arc<Binding>>>, name: &str) {
    if let Entry::Occupied(mut list) = entry {
        if let Ok(at) = list
            .get()
            .binary_search_by(|one| one.name.as_str().cmp(name))
        {
            list.get_mut().remove(at);
        }
        if list.get().is_empty() {
            list.remove();
        }
    }
}
