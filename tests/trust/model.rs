//! Who may do what, as plain as it can be said. It shares nothing with what is tested.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// Tokens are remembered for two minutes, and reviewed for half a minute at most.
pub(crate) const TOKEN_MEMORY: Duration = Duration::from_secs(150);

/// SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

pub(crate) const USERS: usize = 6;
pub(crate) const GROUPS: usize = 3;
pub(crate) const NAMESPACES: usize = 3;
pub(crate) const RESOURCES: [&str; 2] = ["pods", "configmaps"];
/// The object that rights may be limited to.
pub(crate) const NAME: &str = "the-one";

/// What a role allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// To list a resource, and to watch it unless `list_only`.
    Read {
        resource: usize,
        list_only: bool,
        name_only: bool,
    },
    /// To act as a user.
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
    /// `None` for the whole cluster.
    pub(crate) namespace: Option<usize>,
}

/// What is asked, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    /// The user whose token it is.
    pub(crate) caller: usize,
    pub(crate) acts_as: Option<usize>,
    pub(crate) resource: usize,
    pub(crate) namespace: Option<usize>,
    pub(crate) is_named: bool,
    pub(crate) is_watch: bool,
    /// Whether only objects with a label are wanted.
    pub(crate) is_labelled: bool,
}

impl Question {
    /// Everything that can be asked.
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

/// What a token was worth from some moment on: the groups of its user, or nothing.
#[derive(Clone, Debug)]
struct TokenState {
    since: Instant,
    groups: Option<Vec<usize>>,
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) bindings: BTreeMap<u64, Binding>,
    /// By user, the present state last. Before it are those that may still be remembered.
    tokens: BTreeMap<usize, Vec<TokenState>>,
}

impl Model {
    /// Groups of the user whose token it is; without a token none.
    pub(crate) fn groups(&self, caller: usize) -> Option<&[usize]> {
        let present = self.tokens.get(&caller).and_then(|states| states.last());
        present.and_then(|state| state.groups.as_deref())
    }

    /// What a token is worth from now on.
    pub(crate) fn set_token(&mut self, caller: usize, groups: Option<Vec<usize>>) {
        let since = Instant::now();
        let states = self.tokens.entry(caller).or_default();
        states.push(TokenState { since, groups });
    }

    /// Lets go of the states of tokens that cannot be remembered any more. Says whether there were any.
    pub(crate) fn forget(&mut self) -> bool {
        let now = Instant::now();
        let mut has_forgotten = false;
        for states in self.tokens.values_mut() {
            let later = states.iter().skip(1);
            let over = later
                .take_while(|next| now > next.since + TOKEN_MEMORY)
                .count();
            has_forgotten |= over > 0;
            states.drain(..over);
        }
        has_forgotten
    }

    /// 200, 401 or 403: what upstream says.
    pub(crate) fn status(&self, question: &Question) -> u16 {
        self.status_with(self.groups(question.caller), question)
    }

    /// What may be said by what may be remembered of the token.
    pub(crate) fn admissible(&self, question: &Question) -> BTreeSet<u16> {
        let states = self.tokens[&question.caller].iter();
        let statuses = states.map(|state| self.status_with(state.groups.as_deref(), question));
        statuses.collect()
    }

    fn status_with(&self, groups: Option<&[usize]>, question: &Question) -> u16 {
        let Some(groups) = groups else {
            return 401;
        };
        let is_allowed = match question.acts_as {
            None => self.may_read(question.caller, groups, question),
            Some(user) => {
                let right = Right::Impersonate(user);
                let may_impersonate = self.bindings.values().any(|binding| {
                    binding.right == right && is_meant(binding, question.caller, groups)
                });
                may_impersonate && self.may_read(user, &[], question)
            }
        };
        if is_allowed { 200 } else { 403 }
    }

    fn may_read(&self, user: usize, groups: &[usize], question: &Question) -> bool {
        self.bindings.values().any(|binding| {
            let covers = match binding.right {
                Right::Impersonate(_) => false,
                Right::Read {
                    resource,
                    list_only,
                    name_only,
                } => {
                    resource == question.resource
                        && !(list_only && question.is_watch)
                        && (question.is_named || !name_only)
                }
            };
            let reaches = binding.namespace.is_none() || binding.namespace == question.namespace;
            covers && reaches && is_meant(binding, user, groups)
        })
    }
}

fn is_meant(binding: &Binding, user: usize, groups: &[usize]) -> bool {
    match binding.subject {
        Subject::User(subject) => subject == user,
        Subject::Group(subject) => groups.contains(&subject),
    }
}
