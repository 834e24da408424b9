//! Orders from the measuring process to a server, and the events that the server then sends.

use std::io;

/// Length of an event line in bytes, newline included.
pub(crate) const LINE_LEN: usize = 1_024;
/// Events per step of several events.
pub(crate) const MANY: usize = 16;
/// Length of an order on the wire in bytes.
pub(crate) const LEN: usize = 4;

/// An order to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// This many clients will connect. Servers that accept connections by themselves ignore it.
    Accept(u16),
    /// Publish one event.
    One,
    /// Publish [`MANY`] events together.
    Batch,
    /// Publish [`MANY`] events one after the other without a pause.
    Singly,
}

impl Order {
    pub(crate) fn word(self) -> [u8; LEN] {
        match self {
            Self::Accept(count) => {
                let [high, low] = count.to_be_bytes();
                [b'a', high, low, 0]
            }
            Self::One => *b"one ",
            Self::Batch => *b"many",
            Self::Singly => *b"sing",
        }
    }

    pub(crate) fn of(word: [u8; LEN]) -> io::Result<Self> {
        Ok(match &word {
            [b'a', high, low, _] => Self::Accept(u16::from_be_bytes([*high, *low])),
            b"one " => Self::One,
            b"many" => Self::Batch,
            b"sing" => Self::Singly,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }

    /// Events that each client receives.
    pub(crate) fn events(self) -> u64 {
        match self {
            Self::Accept(_) => 0,
            Self::One => 1,
            Self::Batch | Self::Singly => MANY as u64,
        }
    }
}

/// An event line of [`LINE_LEN`] bytes: one of 64 ConfigMaps at its next version.
pub(crate) fn line(version: u64) -> Vec<u8> {
    let head = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"settings-{:02}","namespace":"team","uid":"e0107c60-3809-4949-b3b5-{:012}","resourceVersion":"{version:07}","creationTimestamp":"2026-11-21T02:54:13Z","labels":{{"app":"demo","tier":"web"}}}},"data":{{"text":""#,
        version % 64,
        version % 64,
    );
    let end = "\"}}}\n";
    let text = "x".repeat(LINE_LEN - head.len() - end.len());
    [head, text, end.to_owned()].concat().into_bytes()
}
