//! Bytes from upstream to objects and events. Pure: no sockets, no clock.

mod envelope;
mod framer;
mod list;
mod scanner;
