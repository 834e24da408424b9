//! Why the status cannot be shown.

use std::io;
use std::path::PathBuf;

use http::StatusCode;

use crate::status::STATUS_VERSION;

/// The status cannot be shown. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Host and port.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// No response in time.
    #[error("{0} does not respond")]
    Silent(String),
    /// The connection ended before the status was complete: the gateway was killed, or a port-forward has nothing behind it any more.
    #[error("{0} closed the connection before it sent its status")]
    Closed(String),
    /// The gateway refuses to show its status.
    #[error("{address} refuses to show its status ({}): {text}", code.as_u16())]
    Refused {
        /// Host and port.
        address: String,
        /// 401, 403, 429 or 503.
        code: StatusCode,
        /// Its reason.
        text: String,
    },
    /// Something else listens there.
    #[error("{address} is not the admin port of a kube-fanout gateway: {reason}")]
    NotGateway {
        /// Host and port.
        address: String,
        /// How that was seen.
        reason: String,
    },
    /// A newer gateway.
    #[error(
        "the gateway's status has version {0}, and this program knows version {STATUS_VERSION}: use the program of the gateway's version"
    )]
    Version(u32),
    /// The file cannot be read, or has no token in it.
    #[error("--token-file {path}: {reason}")]
    Token {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Standard output is not a terminal.
    #[error("standard output is not a terminal: use --once")]
    NoTerminal,
    /// The terminal cannot be used.
    #[error("the terminal: {0}")]
    Terminal(#[from] io::Error),
}
