//! The store's rules, one by one, and against a plain model.
