//! The server's state in a form that stores can be compared with.

use std::fmt::Write;

use anyhow::{Context, Result};
use aws_lc_rs::digest::{SHA256, digest as hash};

use crate::http2::{Call, Http2Client};
use crate::target::Target;
use crate::wire::list::json_list;

const PAGE_LEN: usize = 2_000;
const ACCEPT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Number and hash of the objects in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDigest {
    pub objects: usize,
    /// [`digest`] of their lines.
    pub hash: String,
}

/// SHA-256 of the sorted lines `namespace/name/resourceVersion`, as the client-go program computes it.
pub fn digest(mut lines: Vec<String>) -> StoreDigest {
    lines.sort_unstable();
    let sum = hash(&SHA256, lines.concat().as_bytes());
    let mut text = String::new();
    for byte in sum.as_ref() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    StoreDigest {
        objects: lines.len(),
        hash: text,
    }
}

/// All pods of the server at one version.
pub async fn server_digest(target: &Target) -> Result<StoreDigest> {
    let http2 = Http2Client::connect(target).await?;
    let (mut lines, mut more) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/pods?limit={PAGE_LEN}&continue={more}");
        let body = http2.demand(Call::get(&path, ACCEPT), &[]).await?;
        let list: serde_json::Value = serde_json::from_slice(&body).context("a list")?;
        let (_, objects) = json_list(&list)?;
        lines.extend(
            objects
                .iter()
                .map(|(name, version)| format!("{name}/{version}\n")),
        );
        match list["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => more = next.to_owned(),
            _ => return Ok(digest(lines)),
        }
    }
}
