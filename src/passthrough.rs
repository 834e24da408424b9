//! Everything that is not served from memory, streamed both ways.
