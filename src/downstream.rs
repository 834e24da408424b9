//! Towards the clients: listener, requests, lists, watches.

pub mod continue_token;
pub mod request;
pub mod status;
