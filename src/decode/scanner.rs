//! Finds an object's parts in its JSON bytes.
