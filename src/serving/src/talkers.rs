//! Which users and user agents talk most: by requests, lists, bytes and open watches, of the last ten to twenty minutes. It names clients,
//! unlike metrics, so it is only for those who may see the status page.
//!
//! Clients choose their names, so only the frequent ones are kept (`heavy_hitters`): what this takes does not depend on how many there are.

mod heavy_hitters;
mod windows;

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::Mutex;

pub use windows::{TalkCounts, Talker};

use heavy_hitters::HeavyHitters;
use windows::TalkWindows;

/// A stream adds its bytes in portions of so many.
const PORTION: u64 = 256 << 10;

/// A client, by the names that it is counted under.
#[derive(Clone, Copy, Debug)]
pub struct TalkerName<'a> {
    /// The name of the user; empty if it is not known.
    pub user: &'a str,
    /// The `User-Agent` header.
    pub user_agent: &'a str,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TalkKind {
    /// A list.
    List,
    /// A watch that nobody else counts while it is open.
    OpenWatch,
    /// Anything else.
    Other,
}

/// Counts what clients ask for and get.
#[derive(Debug, Default)]
pub struct Talkers {
    users: Mutex<TalkerCounts>,
    agents: Mutex<TalkerCounts>,
}

#[derive(Debug, Default)]
struct TalkerCounts {
    windows: TalkWindows,
    /// Open watches by name, as far as they are counted one by one. As many names as such watches at most.
    open: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
}

/// Open watches that are counted together, by whoever can walk over all of them.
#[derive(Debug, Default)]
pub struct OpenWatches {
    users: HeavyHitters,
    agents: HeavyHitters,
}

impl OpenWatches {
    /// Counts a watch.
    pub fn add(&mut self, name: TalkerName<'_>) {
        self.users.add(name.user, 1);
        self.agents.add(name.user_agent, 1);
    }
}

/// The clients that talk most.
#[derive(Clone, Debug, Default)]
pub struct TopTalkers {
    /// The length of the time that was counted, in seconds; of open watches this moment.
    pub seconds: f64,
    /// By user.
    pub users: Vec<Talker>,
    /// By user agent.
    pub agents: Vec<Talker>,
}

impl Talkers {
    /// Counts a request, and then, by what this returns, the bytes of its response.
    #[must_use]
    pub fn begin(self: &Arc<Self>, name: TalkerName<'_>, kind: TalkKind) -> Talk {
        let counts = TalkCounts {
            requests: 1,
            lists: u64::from(kind == TalkKind::List),
            bytes: 0,
        };
        self.add(name, counts);
        let talk = Talk {
            talkers: Arc::clone(self),
            user: name.user.into(),
            user_agent: name.user_agent.into(),
            pending: 0,
            is_open_watch: kind == TalkKind::OpenWatch,
        };
        if talk.is_open_watch {
            self.users.lock().open(&talk.user);
            self.agents.lock().open(&talk.user_agent);
        }
        talk
    }

    fn add(&self, name: TalkerName<'_>, counts: TalkCounts) {
        let now = Instant::now();
        self.users.lock().windows.add(name.user, counts, now);
        self.agents.lock().windows.add(name.user_agent, counts, now);
    }

    /// Adds bytes of bodies of responses to the counts of a client.
    pub fn add_bytes(&self, name: TalkerName<'_>, bytes: u64) {
        if bytes > 0 {
            let counts = TalkCounts {
                bytes,
                ..TalkCounts::default()
            };
            self.add(name, counts);
        }
    }

    /// The clients that talk most, with these open watches and those that are counted one by one.
    #[must_use]
    pub fn top(&self, open: OpenWatches) -> TopTalkers {
        let now = Instant::now();
        let users = self.users.lock().top(open.users, now);
        let mut agents = self.agents.lock();
        TopTalkers {
            users,
            agents: agents.top(open.agents, now),
            // Every request counts for both.
            seconds: agents.windows.covered(now).as_secs_f64(),
        }
    }
}

impl TalkerCounts {
    fn open(&mut self, name: &Arc<str>) {
        *self.open.entry(Arc::clone(name)).or_default() += 1;
    }

    fn close(&mut self, name: &str) {
        if let Some(open) = self.open.get_mut(name) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(name);
            }
        }
    }

    fn top(&mut self, mut open: HeavyHitters, now: Instant) -> Vec<Talker> {
        for (name, count) in &self.open {
            open.add(name, *count);
        }
        self.windows.top(&open, now)
    }
}

/// A request that is counted: adds the bytes of its response while it is sent.
#[derive(Debug)]
pub struct Talk {
    talkers: Arc<Talkers>,
    user: Arc<str>,
    user_agent: Arc<str>,
    pending: u64,
    is_open_watch: bool,
}

impl Talk {
    /// Counts bytes of the response.
    pub fn sent(&mut self, len: usize) {
        self.pending += len as u64;
        if self.pending >= PORTION {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let name = TalkerName {
            user: &self.user,
            user_agent: &self.user_agent,
        };
        let bytes = std::mem::take(&mut self.pending);
        self.talkers.add_bytes(name, bytes);
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.flush();
        if self.is_open_watch {
            self.talkers.users.lock().close(&self.user);
            self.talkers.agents.lock().close(&self.user_agent);
        }
    }
}

#[cfg(test)]
mod tests;
