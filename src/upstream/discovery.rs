//! Which resources can be listed and watched.
