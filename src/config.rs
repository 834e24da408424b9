//! Settings: resolved and valid.
