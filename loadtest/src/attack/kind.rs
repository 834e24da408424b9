//! The attacks, with their usual size.

use clap::ValueEnum;

/// What is done to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Watches of pods with selectors of 50 KB on one HTTP/2 connection, and 35 pod events a second.
    Selectors,
    /// A few of these, and a pod of 10,000 labels that changes once a second.
    Labels,
    /// Reads of one pod as it was five seconds ago, while pods change 100 times a second.
    Exact,
    /// Watches of what is forwarded, a thousand on each HTTP/2 connection.
    Forwarded,
    /// Lists of pods, read at 10 KB/s each, from the witness' address.
    SlowLists,
    /// Watches on a connection each, more than the server takes, again and again.
    Connections,
    /// Forwarded watches on a connection each, each of which costs the server a connection upstream.
    Descriptors,
    /// PING frames.
    Pings,
    /// SETTINGS frames.
    Settings,
    /// WINDOW_UPDATE frames.
    WindowUpdates,
    /// PRIORITY frames.
    Priorities,
    /// Watches of the witness' collection that are never read, while objects of 2 KB are written there 20 times a second.
    Stalled,
}

impl Attack {
    /// As it is written on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Clients, if the flags name no number.
    pub const fn clients(self) -> usize {
        match self {
            Self::Selectors | Self::Exact => 1_000,
            Self::Labels => 20,
            Self::Forwarded => 6_000,
            Self::SlowLists => 500,
            Self::Connections | Self::Stalled => 3_000,
            Self::Descriptors => 2_000,
            Self::Pings | Self::Settings | Self::WindowUpdates | Self::Priorities => 4,
        }
    }

    /// What they do a second, all together, if the flags do not say: what one thread can do beside what it makes the server do, so that the
    /// attacker does not take the machine from the server by itself.
    pub const fn rate(self) -> f64 {
        match self {
            Self::Selectors | Self::Labels => 200.0,
            Self::Exact => 2_000.0,
            Self::Forwarded | Self::Descriptors | Self::SlowLists => 1_000.0,
            Self::Connections | Self::Stalled => 500.0,
            Self::Pings | Self::Settings | Self::WindowUpdates | Self::Priorities => 1_000_000.0,
        }
    }

    /// Objects that the attack writes a second, if it is about events.
    pub const fn writes(self) -> Option<f64> {
        match self {
            Self::Selectors => Some(35.0),
            Self::Exact => Some(100.0),
            Self::Labels => Some(1.0),
            Self::Stalled => Some(20.0),
            _ => None,
        }
    }

    /// Whether its clients have the address of the witness.
    pub const fn shares_address(self) -> bool {
        matches!(self, Self::SlowLists)
    }
}
