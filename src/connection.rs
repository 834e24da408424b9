//! Client connections: accepting them, finding out which HTTP they speak, and handing a watch from HTTP to whatever delivers it.

mod handover;
mod head;
pub mod listener;
mod preface;
pub mod websocket;
