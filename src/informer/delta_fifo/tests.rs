//! The queue's rules, one by one.
