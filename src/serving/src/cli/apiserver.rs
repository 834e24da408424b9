//! Flags of `apiserver`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::choices::AuthorizationMode;
use super::defaults::{API_AUDIENCE, APISERVER_LISTEN, CHURN, OBJECT_LEN, objects};
use super::words::{ByteLen, ObjectCount};

/// Flags of `apiserver`.
#[derive(Clone, Debug, Args)]
pub struct ApiserverFlags {
    /// Address and port, loopback only.
    #[arg(long, value_name = "ADDRESS", default_value_t = APISERVER_LISTEN)]
    pub listen: SocketAddr,
    /// Initial objects, by plural name.
    #[arg(long, value_name = "RESOURCE=COUNT", value_delimiter = ',', default_values_t = objects())]
    pub objects: Vec<ObjectCount>,
    /// Writes per second, over all objects; 0 for none.
    #[arg(long, value_name = "RATE", default_value_t = CHURN)]
    pub churn: u32,
    /// Approximate length of one object's JSON, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = OBJECT_LEN)]
    pub object_len: ByteLen,
    /// Kinds besides the built-in ones, treated like custom resources.
    ///
    /// Written `widgets.v1.example.com=Widget`, or `zones.v1.example.com=Zone:cluster` for a kind without namespaces.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub extra_kinds: Vec<String>,
    /// Serving certificate chain, PEM; plain HTTP without it. Needs --tls-key.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Users by bearer token, one per line: `token,user,uid,"group1,group2"`.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Authorities of client certificates, PEM. Common name and organizations are user and groups. Needs TLS.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Authorities of front proxies' certificates, PEM. X-Remote-User, -Uid, -Group and -Extra-* are accepted from them. Needs
    /// TLS.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies' certificates; any if none is given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// The API server's own audiences, for which tokens of the file are valid.
    #[arg(long, value_name = "AUDIENCES", value_delimiter = ',', default_values_t = [API_AUDIENCE.to_owned()])]
    pub api_audiences: Vec<String>,
    /// Treat requests without credentials as those of system:anonymous, if callers are authenticated.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    pub anonymous_auth: bool,
    /// How requests are authorized: `AlwaysAllow` or `RBAC`; `AlwaysAllow` if only other flags about callers are given.
    #[arg(long, value_name = "MODE")]
    pub authorization_mode: Option<AuthorizationMode>,
}
