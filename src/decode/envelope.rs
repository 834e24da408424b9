//! The envelope of a watch event.
