//! Towards the clients: connections, requests, lists and watches. Holds no state of a resource itself.

pub mod continue_token;
pub mod list;
pub mod listener;
mod pieces;
pub mod request;
pub mod resources;
pub mod serve;
mod socket;
pub mod status;
mod walk;
pub mod watch;
pub mod websocket;

pub use pieces::Pieces;
