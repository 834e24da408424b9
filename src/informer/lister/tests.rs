//! What listers answer.
