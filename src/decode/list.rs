//! The envelope of a list page.
