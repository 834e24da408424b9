//! Flags of `size`.

use clap::Args;

use super::choices::OutputFormat;
use super::defaults::{
    SIZE_CORES, SIZE_ENCODINGS, SIZE_EVENT_LEN, SIZE_EVENTS, SIZE_NETWORK, SIZE_OBJECTS_LEN,
    SIZE_RESOURCES,
};
use super::words::ByteLen;

/// Flags of `size`.
#[derive(Clone, Debug, Args)]
pub struct SizeFlags {
    /// Watches of all clients together.
    #[arg(long, value_name = "COUNT")]
    pub watches: u32,
    /// Events that each watch receives a second and that other watches receive as well.
    #[arg(long, value_name = "RATE", default_value_t = SIZE_EVENTS)]
    pub events: f64,
    /// Events that each watch receives a second and that no other watch receives, such as those of a kubelet's pods.
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    pub own_events: f64,
    /// Bytes of an event.
    #[arg(long, value_name = "BYTES", default_value_t = SIZE_EVENT_LEN)]
    pub event_len: ByteLen,
    /// Events a second that the API server sends to each gateway; without it, as many as watches receive: --events, and --own-events of
    /// every watch.
    #[arg(long, value_name = "RATE")]
    pub upstream_events: Option<f64>,
    /// Bytes of all objects of the cached resources, once for each encoding that clients use.
    #[arg(long, value_name = "BYTES", default_value_t = SIZE_OBJECTS_LEN)]
    pub objects_len: ByteLen,
    /// Number of cached resources.
    #[arg(long, value_name = "COUNT", default_value_t = SIZE_RESOURCES)]
    pub resources: u32,
    /// Number of encodings that clients use for the same resource: JSON, protobuf.
    #[arg(long, value_name = "COUNT", default_value_t = SIZE_ENCODINGS)]
    pub encodings: u32,
    /// Bytes that clients list a second, over all clients.
    #[arg(long, value_name = "BYTES", default_value_t = ByteLen(0))]
    pub listed_len: ByteLen,
    /// Lists that are sent at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub lists: u32,
    /// Clients connect with HTTP/2, with many watches on a connection.
    #[arg(long)]
    pub http2: bool,
    /// Clients connect without TLS.
    #[arg(long)]
    pub plain_http: bool,
    /// Cores of a replica.
    #[arg(long, value_name = "COUNT", default_value_t = SIZE_CORES)]
    pub cores: f64,
    /// Bandwidth of a replica's network, in Gbit/s.
    #[arg(long, value_name = "GBITS", default_value_t = SIZE_NETWORK)]
    pub network: f64,
    /// Form of the answer.
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
    pub output: OutputFormat,
}
