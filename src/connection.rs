//! Client connections: accepting them, finding out which HTTP they speak, and handing a watch from HTTP to whatever delivers it.

mod body;
mod head;
mod hijack;
pub mod listener;
mod preface;
mod service;
pub mod websocket;

pub(crate) use body::ClientBody;
