//! Flags as typed.
