//! The encodings of objects on the wire.

/// How objects are encoded on the wire: what the gateway requests from upstream, and what a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// `application/json`; a watch event is one line.
    #[default]
    Json,
    /// `application/vnd.kubernetes.protobuf`; each watch event is preceded by its length. Compiled-in kinds only.
    Protobuf,
}

impl Encoding {
    /// `json` or `protobuf`, for log lines and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }

    /// The media type of lists and single objects.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The media type of watch responses (docs/PROTOCOL.md §4.11).
    #[must_use]
    pub const fn stream_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}
