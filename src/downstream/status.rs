//! The one table from errors to Kubernetes Status answers.
