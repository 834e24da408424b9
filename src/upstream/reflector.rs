//! Decides list, watch, relist and back-off; performs nothing.
