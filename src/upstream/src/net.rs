//! TCP sockets: tokio's, or under the feature `sim` those of a simulated network (decision 45). Code that a simulation runs takes its
//! sockets from here.

#[cfg(all(feature = "sim", not(debug_assertions)))]
compile_error!("the feature `sim` replaces the network; it is for tests/sim only");

#[cfg(not(feature = "sim"))]
pub use hyper_util::client::legacy::connect::HttpConnector;
#[cfg(all(feature = "gateway", not(feature = "sim")))]
pub use tokio::net::lookup_host;
#[cfg(not(feature = "sim"))]
pub use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "sim")]
pub use simulated::{HttpConnector, lookup_host};
#[cfg(feature = "sim")]
pub use simulated::{TcpListener, TcpStream};

#[cfg(feature = "sim")]
pub mod simulated;
