//! The attacks and their usual sizes.

use clap::ValueEnum;

/// Kinds of attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Watches of pods with the longest selectors that memory evaluates, on one HTTP/2 connection, and 35 pod events a second. A few dozen cost
    /// as much as a resource's watches may; the others are forwarded.
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
    /// Writes of which one byte comes, from several addresses.
    HalfBodies,
    /// Requests of two thousand fields that have to wait.
    ManyFields,
    /// HTTP/2 connections without a request, more than the server allows, from several addresses.
    IdleConnections,
    /// Lists of a pod by its name in all namespaces, again and again.
    NameSelectors,
    /// Requests on TLS connections of their own, from several addresses, with certificates among which it takes long to find no path.
    CertificateChains,
}

impl Attack {
    /// The value on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Its usual size. The rate is what one thread can do, so that the attacker does not starve the server of CPU.
    pub const fn size(self) -> AttackSize {
        match self {
            Self::Selectors => AttackSize::of(1_000, 200.0, Some(35.0)),
            Self::Labels => AttackSize::of(20, 200.0, Some(1.0)),
            Self::Exact => AttackSize::of(1_000, 2_000.0, Some(100.0)),
            Self::Forwarded => AttackSize::of(6_000, 1_000.0, None),
            Self::SlowLists => AttackSize::of(500, 1_000.0, None),
            Self::Connections => AttackSize::of(3_000, 500.0, None),
            Self::Descriptors => AttackSize::of(2_000, 1_000.0, None),
            Self::Stalled => AttackSize::of(3_000, 500.0, Some(20.0)),
            Self::HalfBodies => AttackSize::of(2_000, 1_000.0, None),
            Self::ManyFields => AttackSize::of(4, 400.0, None),
            Self::IdleConnections => AttackSize::of(3_000, 500.0, None),
            Self::NameSelectors => AttackSize::of(100, 500.0, None),
            Self::CertificateChains => AttackSize::of(200, 200.0, None),
            Self::Pings | Self::Settings | Self::WindowUpdates | Self::Priorities => {
                AttackSize::of(4, 1_000_000.0, None)
            }
        }
    }

    /// Number of addresses of its clients, from the attacker's on.
    pub const fn addresses(self) -> usize {
        match self {
            Self::HalfBodies | Self::IdleConnections | Self::CertificateChains => 8,
            _ => 1,
        }
    }

    /// Whether its clients use the witness's address.
    pub const fn shares_address(self) -> bool {
        matches!(self, Self::SlowLists)
    }
}

/// The size of an attack.
#[derive(Debug, Clone, Copy)]
pub struct AttackSize {
    pub clients: usize,
    /// Operations a second of all clients together.
    pub rate: f64,
    /// Objects that the attack writes a second, if it needs events.
    pub writes: Option<f64>,
}

impl AttackSize {
    const fn of(clients: usize, rate: f64, writes: Option<f64>) -> Self {
        Self {
            clients,
            rate,
            writes,
        }
    }
}
