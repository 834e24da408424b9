//! The bounds of one frame of a response body.

/// Approximate length of one body frame: what a socket buffer takes at once.
pub(super) const FRAME_LEN: usize = 128 << 10;

/// Maximum number of slices in a body frame: hyper passes 64 to one `writev`, including the head and the end of the HTTP chunk.
pub(super) const FRAME_SLICES: usize = 60;
