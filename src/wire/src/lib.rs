//! Kubernetes objects as the bytes that an API server writes. Pure: no sockets, no clock, no `async`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`resource`] | the domain: names, versions, objects, and the positions of their parts in the bytes |
//! | [`decode`] | from the bytes that upstream sends to events and objects |
//! | [`selector`] | label, field and shard selectors as the API server parses them |

pub mod decode;
pub mod resource;
pub mod selector;
