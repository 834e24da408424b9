//! Towards the clients: connections, requests, lists and watches. Holds no state of a resource itself.

pub mod admission;
mod conduct;
pub mod continue_token;
mod delivery;
pub mod gzip;
mod handover;
mod head;
pub mod indent;
pub mod list;
pub mod listener;
mod pieces;
mod preface;
pub mod request;
pub mod resources;
pub mod serve;
mod stall;
pub mod status;
mod transport;
mod walk;
pub mod watch;
pub mod websocket;

pub use pieces::Pieces;
