//! Cuts a watch response into lines.
