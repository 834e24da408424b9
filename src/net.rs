//! TCP sockets: tokio's, or under `--cfg fanout_sim` those of a simulated network (decision 45). Code that a simulation runs takes its
//! sockets from here.

#[cfg(not(fanout_sim))]
pub(crate) use hyper_util::client::legacy::connect::HttpConnector;
#[cfg(all(feature = "gateway", not(fanout_sim)))]
pub(crate) use tokio::net::lookup_host;
#[cfg(not(fanout_sim))]
pub use tokio::net::{TcpListener, TcpStream};

#[cfg(fanout_sim)]
pub(crate) use simulated::{HttpConnector, lookup_host};
#[cfg(fanout_sim)]
pub use simulated::{TcpListener, TcpStream};

#[cfg(fanout_sim)]
pub mod simulated;
