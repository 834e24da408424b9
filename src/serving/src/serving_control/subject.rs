//! What rules see of a request, kept for as long as it is open.

use std::net::IpAddr;
use std::sync::Arc;

use crate::auth::user::User;
use crate::config::{KnownUser, ReadSubject};
use crate::resource::Gvr;

/// The user of a request, as far as it is known.
#[derive(Clone, Debug)]
pub enum SubjectUser {
    /// Nobody has asked who it is.
    Unknown,
    /// Callers are not authenticated.
    Nobody,
    /// This user has authenticated, whomever it impersonates.
    User(Arc<User>),
}

impl SubjectUser {
    /// As rules see it.
    #[must_use]
    pub fn known(&self) -> KnownUser<'_> {
        match self {
            Self::Unknown => KnownUser::Unknown,
            Self::Nobody => KnownUser::Nobody,
            Self::User(user) => KnownUser::User {
                name: &user.name,
                groups: &user.groups,
            },
        }
    }
}

/// A list or a watch that is forwarded, as rules see it.
#[derive(Clone, Debug)]
pub struct OwnedSubject {
    /// The user.
    pub user: SubjectUser,
    /// The `User-Agent` header, shortened.
    pub agent: Box<str>,
    /// What is read.
    pub resource: Gvr,
    /// The address of the client's connection.
    pub address: IpAddr,
}

impl OwnedSubject {
    /// As rules see it.
    #[must_use]
    pub fn as_read(&self) -> ReadSubject<'_> {
        ReadSubject {
            user: self.user.known(),
            agent: &self.agent,
            resource: &self.resource,
            address: self.address,
        }
    }
}
