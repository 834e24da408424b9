//! Flags of `apiserver`.

use std::net::SocketAddr;

use clap::Args;

use super::{APISERVER_LISTEN, ByteLen, CHURN, OBJECT_LEN, ObjectCount, objects};

/// Flags of `apiserver`.
#[derive(Clone, Debug, Args)]
pub struct ApiserverFlags {
    /// Address and port, plain HTTP without any check of callers; loopback only.
    #[arg(long, value_name = "ADDRESS", default_value_t = APISERVER_LISTEN)]
    pub listen: SocketAddr,
    /// Objects to hold at first, by plural name.
    #[arg(long, value_name = "RESOURCE=COUNT", value_delimiter = ',', default_values_t = objects())]
    pub objects: Vec<ObjectCount>,
    /// Writes a second, over all objects; 0 for none.
    #[arg(long, value_name = "RATE", default_value_t = CHURN)]
    pub churn: u32,
    /// Length of one object's JSON, about.
    #[arg(long, value_name = "BYTES", default_value_t = OBJECT_LEN)]
    pub object_len: ByteLen,
    /// Kinds to serve besides the built-in ones, laid out like custom resources: plural.version.group=Kind, with
    /// :cluster at the end for kinds outside namespaces.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub extra_kinds: Vec<String>,
}
