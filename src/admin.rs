//! Metrics, health and build facts on a port of their own.
