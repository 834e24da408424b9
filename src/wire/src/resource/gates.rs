//! Feature gates of the API server.

/// The upstream feature gates that affect lists and watches. The default is that of Kubernetes 1.36.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// `ShardedListAndWatch`: whether upstream evaluates `shardSelector` (docs/PROTOCOL.md §2.7).
    pub shards: bool,
    /// `CBORServingAndStorage`: whether upstream serves `application/cbor` (docs/PROTOCOL.md §5.9).
    pub cbor: bool,
}
