//! Metric handles and their registry.
