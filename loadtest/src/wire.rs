//! What comes over the wire, read by hand and cheaply: response heads, chunks, lines, watch events.
//!
//! The swarm shares its cores with the server it measures, so nothing here copies or allocates while whole lines arrive in one piece.

pub mod event;
pub mod frames;
pub mod lines;
pub mod list;
pub mod protobuf;
pub mod response;
pub mod search;
pub mod websocket;
