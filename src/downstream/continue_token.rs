//! Continue tokens in upstream's own layout.
