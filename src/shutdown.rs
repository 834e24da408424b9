//! Drain: stop accepting, end streams, deadline.
