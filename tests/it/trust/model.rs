//! A simple model of authentication and RBAC that predicts the API server's decisions. It shares no code with the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// How long the gateway may act on a token's previous user: it remembers reviewed tokens for two minutes, and a review takes at most half a
/// minute.
pub(crate) const TOKEN_MEMORY: Duration = Duration::from_secs(150);

pub(crate) const USERS: usize = 6;
pub(crate) const GROUPS: usize = 3;
pub(crate) const NAMESPACES: usize = 3;
pub(crate) const RESOURCES: [&str; 2] = ["pods", "configmaps"];
/// The name of the only object that a right may be limited to.
pub(crate) const NAME: &str = "the-one";

/// The rule of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Lists a resource, and watches it unless `list_only`; with `name_only`, only the object [`NAME`].
    Read {
        resource: usize,
        list_only: bool,
        name_only: bool,
    },
    /// Impersonates a user.
    Impersonate(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    User(usize),
    Group(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    pub(crate) subject: Subject,
    pub(crate) right: Right,
    /// `None` for a cluster role binding.
    pub(crate) namespace: Option<usize>,
}

/// A list or watch request, and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestRequest {
    /// The user whose token the request carries.
    pub(crate) caller: usize,
    pub(crate) acts_as: Option<usize>,
    pub(crate) resource: usize,
    pub(crate) namespace: Option<usize>,
    pub(crate) is_named: bool,
    pub(crate) is_watch: bool,
    /// Whether the request has a label selector.
    pub(crate) is_labelled: bool,
}

impl TestRequest {
    /// Every possible request.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let switches = 0..8_u8;
        let namespaces = 0..=NAMESPACES;
        let callers = (0..USERS).flat_map(|caller| (0..=USERS).map(move |user| (caller, user)));
        callers.flat_map(move |(caller, user)| {
            let (namespaces, switches) = (namespaces.clone(), switches.clone());
            namespaces.flat_map(move |namespace| {
                let switches = switches.clone();
                (0..RESOURCES.len()).flat_map(move |resource| {
                    switches.clone().map(move |bits| Self {
                        caller,
                        acts_as: (user < USERS).then_some(user),
                        resource,
                        namespace: (namespace < NAMESPACES).then_some(namespace),
                        is_named: bits & 1 > 0,
                        is_watch: bits & 2 > 0,
                        is_labelled: bits & 4 > 0,
                    })
                })
            })
        })
    }
}

/// The groups of a token's user from `since` on; `None` while the token is unknown.
#[derive(Clone, Debug)]
struct TokenState {
    since: Instant,
    groups: Option<Vec<usize>>,
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) bindings: BTreeMap<u64, Binding>,
    /// By user. The present state is the last one; the gateway may still remember the states before it.
    tokens: BTreeMap<usize, Vec<TokenState>>,
}

impl Model {
    /// The groups of the caller's user; `None` if the token is unknown.
    pub(crate) fn groups(&self, caller: usize) -> Option<&[usize]> {
        let present = self.tokens.get(&caller).and_then(|states| states.last());
        present.and_then(|state| state.groups.as_deref())
    }

    /// Sets the groups of a token's user from now on, or makes the token unknown.
    pub(crate) fn set_token(&mut self, caller: usize, groups: Option<Vec<usize>>) {
        let since = Instant::now();
        let states = self.tokens.entry(caller).or_default();
        states.push(TokenState { since, groups });
    }

    /// Drops the token states that the gateway can no longer remember. Returns whether there were any.
    pub(crate) fn drop_old_tokens(&mut self) -> bool {
        let now = Instant::now();
        let mut has_dropped = false;
        for states in self.tokens.values_mut() {
            let later = states.iter().skip(1);
            let old_count = later
                .take_while(|next| now > next.since + TOKEN_MEMORY)
                .count();
            has_dropped |= old_count > 0;
            states.drain(..old_count);
        }
        has_dropped
    }

    /// The API server's response: 200, 401 or 403.
    pub(crate) fn status(&self, request: &TestRequest) -> u16 {
        self.status_with(self.groups(request.caller), request)
    }

    /// The responses that the gateway may give, from any state of the token that it may remember.
    pub(crate) fn admissible(&self, request: &TestRequest) -> BTreeSet<u16> {
        let states = self.tokens[&request.caller].iter();
        let statuses = states.map(|state| self.status_with(state.groups.as_deref(), request));
        statuses.collect()
    }

    fn status_with(&self, groups: Option<&[usize]>, request: &TestRequest) -> u16 {
        let Some(groups) = groups else {
            return 401;
        };
        let is_allowed = match request.acts_as {
            None => self.may_read(request.caller, groups, request),
            Some(user) => {
                let right = Right::Impersonate(user);
                let may_impersonate = self.bindings.values().any(|binding| {
                    binding.right == right && applies_to(binding, request.caller, groups)
                });
                may_impersonate && self.may_read(user, &[], request)
            }
        };
        if is_allowed { 200 } else { 403 }
    }

    fn may_read(&self, user: usize, groups: &[usize], request: &TestRequest) -> bool {
        self.bindings.values().any(|binding| {
            let covers_request = match binding.right {
                Right::Impersonate(_) => false,
                Right::Read {
                    resource,
                    list_only,
                    name_only,
                } => {
                    resource == request.resource
                        && !(list_only && request.is_watch)
                        && (request.is_named || !name_only)
                }
            };
            let covers_namespace = binding.namespace.is_none() || binding.namespace == request.namespace;
            covers_request && covers_namespace && applies_to(binding, user, groups)
        })
    }
}

fn applies_to(binding: &Binding, user: usize, groups: &[usize]) -> bool {
    match binding.subject {
        Subject::User(subject) => subject == user,
        Subject::Group(subject) => groups.contains(&subject),
    }
}
