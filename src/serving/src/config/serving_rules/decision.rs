//! Which side answers a read, by the rules.

use std::net::IpAddr;

use super::glob::Glob;
use super::rules::{RuleMode, ServingMode, ServingRule, ServingRules, ShareBy};
use crate::resource::Gvr;
use crate::stable_share::share;

/// Which side answers a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// Memory; the number of the rule that says so, from 0, if it is not the absence of one.
    Memory(Option<usize>),
    /// Upstream, by this rule.
    Upstream(usize),
    /// Upstream, by this rule, and what memory would have answered is compared with it.
    Shadow(usize),
    /// That depends on the user, who is not known yet.
    User,
}

/// The user of a read.
#[derive(Clone, Copy, Debug)]
pub enum KnownUser<'a> {
    /// It is not known yet who it is.
    Unknown,
    /// Callers are not authenticated.
    Nobody,
    /// A user with this name and these groups.
    User {
        /// The user's name.
        name: &'a str,
        /// The user's groups.
        groups: &'a [String],
    },
}

/// A read, as far as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct ReadSubject<'a> {
    /// The user.
    pub user: KnownUser<'a>,
    /// The `User-Agent` header.
    pub agent: &'a str,
    /// What is read.
    pub resource: &'a Gvr,
    /// The address of the client's connection.
    pub address: IpAddr,
}

impl ServingRules {
    /// Which side answers a read.
    #[must_use]
    pub fn answerer(&self, subject: &ReadSubject<'_>) -> Answerer {
        match self.mode {
            ServingMode::Rules => {}
            ServingMode::Passthrough => return Answerer::Upstream(0),
            ServingMode::Shadow => return Answerer::Shadow(0),
        }
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.matches(subject) {
                Some(false) => {}
                Some(true) => {
                    return match (rule.draws(subject), rule.mode) {
                        (Some(true), RuleMode::Memory) => Answerer::Memory(Some(index)),
                        (Some(true), RuleMode::Shadow) => Answerer::Shadow(index),
                        (Some(false), _) => Answerer::Upstream(index),
                        (None, _) => Answerer::User,
                    };
                }
                None => return Answerer::User,
            }
        }
        Answerer::Memory(None)
    }
}

impl ServingRule {
    /// Whether the rule matches a read; `None` if that depends on an unknown user.
    fn matches(&self, subject: &ReadSubject<'_>) -> Option<bool> {
        let resources = self.resources.as_ref();
        let is_known_apart = matches_any(self.agents.as_deref(), subject.agent)
            && resources.is_none_or(|list| list.iter().any(|one| one.covers(subject.resource)));
        if !is_known_apart {
            return Some(false);
        }
        if self.users.is_none() && self.groups.is_none() {
            return Some(true);
        }
        let (name, groups) = match subject.user {
            KnownUser::Unknown => return None,
            KnownUser::Nobody => ("", &[][..]),
            KnownUser::User { name, groups } => (name, groups),
        };
        let is_in_group =
            |list: &Vec<Glob>| groups.iter().any(|group| matches_any(Some(list), group));
        let is_user = matches_any(self.users.as_deref(), name);
        Some(is_user && self.groups.as_ref().is_none_or(is_in_group))
    }

    /// Whether this client is among the percentage of those that the rule matches; `None` if that depends on an unknown user.
    fn draws(&self, subject: &ReadSubject<'_>) -> Option<bool> {
        let part = self.percent.part();
        if part <= 0.0 || part >= 1.0 {
            return Some(part > 0.0);
        }
        let name = match subject.user {
            KnownUser::Unknown => return None,
            KnownUser::Nobody => "",
            KnownUser::User { name, .. } => name,
        };
        let address = subject.address.to_canonical();
        let key = match self.by {
            // Without users, only the address tells clients apart.
            ShareBy::User if !name.is_empty() => name.to_owned(),
            ShareBy::User | ShareBy::Client => format!("{name}\n{address}"),
        };
        Some(share(&self.salt, &key) < part)
    }
}

fn matches_any(list: Option<&[Glob]>, name: &str) -> bool {
    list.is_none_or(|list| list.iter().any(|glob| glob.matches(name)))
}
