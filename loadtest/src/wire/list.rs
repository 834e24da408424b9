//! A list of a built-in kind, read without keeping it: thousands of clients may list at once.
//!
//! Relies on the field order that [`Event::parse`](super::event::Event::parse) relies on: items start with their metadata, and that with
//! name, namespace and version.

use anyhow::{Context, Result};
use memchr::memmem;
use serde_json::Value;

use super::event::{first_name, first_version, name_of};
use crate::client::list_version;
use crate::verify::reference::object_print;

/// The start of an item. User text cannot contain it: inside a string each quote has a backslash before it.
const ITEM: &[u8] = b"{\"metadata\":{\"name\":\"";
/// The item's version, behind its name.
const VERSION: &[u8] = b"\"resourceVersion\":\"";
/// Length of a list's beginning that holds its version: typed lists write it first.
const HEAD_LEN: usize = 512;
/// Length of an item's beginning that holds its version.
const ITEM_HEAD_LEN: usize = 4_096;

/// A list as far as it is compared: its version, and the objects' namespaced names with their versions.
pub type ListVersions = (u64, Vec<(String, u64)>);

/// Reads a list that a JSON parser has read.
pub fn json_list(list: &Value) -> Result<ListVersions> {
    let items = list["items"].as_array().context("no items")?;
    let version = |of: &Value| of["metadata"]["resourceVersion"].as_str()?.parse().ok();
    let objects = items
        .iter()
        .filter_map(|object| Some((name_of(object)?, version(object)?)));
    Ok((list_version(list)?, objects.collect()))
}

#[derive(Debug, Default)]
pub struct ListReader {
    head: Vec<u8>,
    /// From the start of an item whose version has not arrived, or bytes that may be the start of an item.
    held: Vec<u8>,
    print: u64,
}

impl ListReader {
    pub fn feed(&mut self, piece: &[u8]) {
        let room = HEAD_LEN.saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.held.extend_from_slice(piece);
        let mut at = 0;
        let rest = loop {
            let Some(begin) = memmem::find(&self.held[at..], ITEM).map(|found| at + found) else {
                break at.max((self.held.len() + 1).saturating_sub(ITEM.len()));
            };
            let item = &self.held[begin..];
            let head = &item[..item.len().min(ITEM_HEAD_LEN)];
            match item_print(head) {
                Some(print) => self.print ^= print,
                None if head.len() < ITEM_HEAD_LEN => break begin,
                // An unreadable item changes the fingerprint.
                None => self.print ^= 1,
            }
            at = begin + ITEM.len();
        };
        self.held.drain(..rest);
    }

    /// The list's version, and the fingerprint of its objects; none if it has no version.
    pub fn finish(self) -> Option<(u64, u64)> {
        Some((first_version(&self.head)?, self.print))
    }
}

/// The item's part of the fingerprint, once its version has arrived.
fn item_print(head: &[u8]) -> Option<u64> {
    let at = memmem::find(head, VERSION)?;
    let version = first_version(&head[at..])?;
    Some(object_print(&first_name(&head[..at])?, version))
}

#[cfg(test)]
mod tests {
    //! The fingerprint is that of the objects, however the list is cut.

    use super::*;
    use crate::verify::reference::{ObjectVersions, fingerprint};

    fn list(items: &[(&str, u64)]) -> String {
        let items: Vec<_> = items
            .iter()
            .map(|(name, version)| format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"{version}"}},"data":{{"a":"{{\"metadata\":{{\"name\":\"x\"","b":"{}"}}}}"#, "p".repeat(5_000)))
            .collect();
        format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"77"}},"items":[{}]}}"#,
            items.join(",")
        )
    }

    #[test]
    fn a_list_has_the_fingerprint_of_its_objects_however_it_is_cut() {
        let items = [("a", 3), ("b", 70), ("c", 5)];
        let state: ObjectVersions = items
            .iter()
            .map(|(name, version)| (format!("n/{name}"), *version))
            .collect();
        let text = list(&items);
        for piece_len in [1, 2, 7, 20, 21, 4_096, text.len()] {
            let mut listing = ListReader::default();
            text.as_bytes()
                .chunks(piece_len)
                .for_each(|piece| listing.feed(piece));
            assert_eq!(
                listing.finish(),
                Some((77, fingerprint(&state))),
                "pieces of {piece_len}"
            );
        }
        let mut listing = ListReader::default();
        listing.feed(list(&items[..2]).as_bytes());
        assert_ne!(listing.finish(), Some((77, fingerprint(&state))));
        assert_eq!(ListReader::default().finish(), None);
    }
}
