//! Connections to the API server.
