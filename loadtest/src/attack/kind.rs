//! The attacks and their usual sizes.

use clap::ValueEnum;

/// Kinds of attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Watches of pods with selectors of 50 KB on one HTTP/2 connection, and 35 pod events a second.
    Selectors,
    /// A few such watches, and a pod of 10,000 labels that changes once a second.
    Labels,
    /// Reads of one pod at a version five seconds old, while pods change 100 times a second.
    Exact,
    /// Watches that the gateway forwards, a thousand on each HTTP/2 connection.
    Forwarded,
    /// Lists of pods, read at 10 KB/s each, from the witness's address.
    SlowLists,
    /// Watches on a connection each, more than the server allows, again and again.
    Connections,
    /// Forwarded watches on a connection each, each of which costs the server an upstream connection.
    Descriptors,
    /// PING frames.
    Pings,
    /// SETTINGS frames.
    Settings,
    /// WINDOW_UPDATE frames.
    WindowUpdates,
    /// PRIORITY frames.
    Priorities,
    /// Watches of the witness's collection that are never read, while objects of 2 KB are written there 20 times a second.
    Stalled,
}

impl Attack {
    /// The value on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Default number of clients.
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

    /// Default operations a second of all clients together: what one thread can do, so that the attacker does not starve the
    /// server of CPU.
    pub const fn rate(self) -> f64 {
        match self {
            Self::Selectors | Self::Labels => 200.0,
            Self::Exact => 2_000.0,
            Self::Forwarded | Self::Descriptors | Self::SlowLists => 1_000.0,
            Self::Connections | Self::Stalled => 500.0,
            Self::Pings | Self::Settings | Self::WindowUpdates | Self::Priorities => 1_000_000.0,
        }
    }

    /// Objects that the attack writes a second, if it needs events.
    pub const fn writes(self) -> Option<f64> {
        match self {
            Self::Selectors => Some(35.0),
            Self::Exact => Some(100.0),
            Self::Labels => Some(1.0),
            Self::Stalled => Some(20.0),
            _ => None,
        }
    }

    /// Whether its clients use the witness's address.
    pub const fn shares_address(self) -> bool {
        matches!(self, Self::SlowLists)
    }
}
