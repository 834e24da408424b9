//! Parsers of what servers send: responses, lines, watch events, lists, WebSocket frames.
//!
//! The swarm shares its cores with the server that it measures, so nothing here copies or allocates while whole lines arrive in one piece.

pub mod event;
pub mod frames;
pub mod gunzip;
pub mod lines;
pub mod list;
pub mod named;
pub mod protobuf;
pub mod response;
pub mod search;
pub mod websocket;
