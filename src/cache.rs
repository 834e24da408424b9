//! The watch cache of one resource: snapshot, ring, epoch.
