//! A seeded run against a model of the API server.
