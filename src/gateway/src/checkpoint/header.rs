//! What a checkpoint says about itself, before its objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::capture::Capture;
use crate::cache::Gap;
use crate::resource::{Encoding, Layout, ResourceKind, ResourceVersion};

/// How far the versions of a lost history may be above the newest one: so many writes take months. Clients at or below a lost version that has
/// not been reached again have to list, so a wrong one would be costly for long.
pub const LOST_AHEAD_MAX: u64 = 1 << 32;

/// The header of a checkpoint: whose state it is, and from which version on its history is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointHeader {
    /// Version and commit of the gateway that wrote it, for people.
    pub written_by: String,
    /// The uid of the cluster's namespace `kube-system`; `None` if the gateway could not read it.
    pub cluster: Option<String>,
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name.
    pub resource: String,
    /// The kind of an object.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether the JSON has the layout of a compiled-in kind.
    pub typed: bool,
    /// Whether the frames are protobuf.
    pub protobuf: bool,
    /// The version of the base: the history has every change after it.
    pub base_version: u64,
    /// History below this version must not be used.
    pub forgotten: u64,
    /// The state was proven to be upstream's at this version, which clients may have; 0 if that is not above the last event.
    #[serde(default)]
    pub proven: u64,
    /// Clients may hold versions up to this one from an earlier history, which upstream no longer has; 0 if there was none.
    #[serde(default)]
    pub lost: u64,
    /// Pairs of versions between which the history is not known.
    pub gaps: Vec<(u64, u64)>,
    /// When the base was written, in milliseconds since 1970.
    pub written_at_ms: u64,
    /// A bookmark as clients receive it: a watch frame, in base64.
    pub bookmark: String,
}

impl CheckpointHeader {
    /// The header for what was captured of the cache of `kind` in the cluster with this uid.
    #[must_use]
    pub fn new(
        kind: &ResourceKind,
        cluster: Option<String>,
        capture: &Capture,
        (bookmark, now_ms): (&[u8], u64),
    ) -> Self {
        let gaps = &capture.snapshot().gaps;
        let newest = capture.snapshot().resource_version.0;
        Self {
            written_by: crate::build_info::long_version().to_owned(),
            cluster,
            group: kind.gvr.group.to_string(),
            version: kind.gvr.version.to_string(),
            resource: kind.gvr.resource.to_string(),
            kind: kind.kind.clone(),
            namespaced: kind.namespaced,
            typed: kind.layout == Layout::Typed,
            protobuf: kind.encoding == Encoding::Protobuf,
            base_version: capture.base_version().0,
            forgotten: capture.snapshot().forgotten.0,
            // A reader refuses more, and with it the whole state.
            proven: capture
                .proven()
                .0
                .min(newest.saturating_add(LOST_AHEAD_MAX)),
            lost: capture.lost().0.min(newest.saturating_add(LOST_AHEAD_MAX)),
            gaps: gaps.iter().map(|gap| (gap.from.0, gap.to.0)).collect(),
            written_at_ms: now_ms,
            bookmark: STANDARD.encode(bookmark),
        }
    }

    /// Whether the checkpoint holds this resource, in the layout and the encoding that upstream has now.
    #[must_use]
    pub fn is_of(&self, kind: &ResourceKind) -> bool {
        let gvr = &kind.gvr;
        (&*gvr.group, &*gvr.version, &*gvr.resource)
            == (&*self.group, &*self.version, &*self.resource)
            && self.kind == kind.kind
            && self.namespaced == kind.namespaced
            && self.typed == (kind.layout == Layout::Typed)
            && self.encoding() == kind.encoding
    }

    /// The encoding of the frames.
    #[must_use]
    pub const fn encoding(&self) -> Encoding {
        match self.protobuf {
            true => Encoding::Protobuf,
            false => Encoding::Json,
        }
    }

    /// The bookmark's frame; `None` if it cannot be decoded.
    #[must_use]
    pub fn bookmark_frame(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.bookmark).ok()
    }

    /// The gaps, newest last.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let gap = |(from, to): &(u64, u64)| Gap {
            from: ResourceVersion(*from),
            to: ResourceVersion(*to),
        };
        self.gaps.iter().map(gap).collect()
    }
}
