//! Flags of `hostile` and of the attackers that it starts.

use std::net::Ipv4Addr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{ServerFlags, seconds};

/// Flags of `hostile`.
#[derive(Debug, Clone, Args)]
#[allow(missing_docs, reason = "a group of flags, documented where they are")]
pub struct Hostile {
    #[command(flatten)]
    pub server: ServerFlags,
    /// What is done to the server.
    #[arg(long, value_enum)]
    pub attack: Attack,
    /// Time of the witness alone.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub quiet: Duration,
    /// Time of the attack, after its clients have come.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub duration: Duration,
    /// Time afterwards, at whose end memory must be back.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub after: Duration,
    /// Clients of the attack: connections, or watches on few of them; by default what suits it.
    #[arg(long)]
    pub clients: Option<usize>,
    /// Requests or frames a second of all its clients together; by default what suits it.
    #[arg(long)]
    pub rate: Option<f64>,
}

/// Flags of one attacker.
#[derive(Debug, Clone, Args)]
pub struct Attacker {
    /// Server under attack.
    #[arg(long)]
    pub target: String,
    /// API server that takes the attack's own writes.
    #[arg(long)]
    pub reference: String,
    /// What it does.
    #[arg(long, value_enum)]
    pub attack: Attack,
    /// How many clients it plays.
    #[arg(long)]
    pub clients: usize,
    /// Requests or frames a second of all of them.
    #[arg(long)]
    pub rate: f64,
    /// Their address.
    #[arg(long)]
    pub source: Ipv4Addr,
    /// Ends by itself after this time, if its owner does not end it before.
    #[arg(long, value_parser = seconds)]
    pub life: Duration,
}

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
