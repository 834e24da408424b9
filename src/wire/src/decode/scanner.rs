//! Finds the parts of an object in its JSON bytes. Does not check the object against a schema.

use crate::resource::{ByteSpan, FieldTable, ObjectParts, ResourceVersion, SelectableField};

use super::json::{Json, JsonText, ScanError, span};

/// The annotation of the bookmark that ends a streamed list (KEP-3157). Its value must be exactly `true`.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The contents of a bookmark (docs/PROTOCOL.md §4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// Everything up to this version has been delivered.
    pub resource_version: ResourceVersion,
    /// Position of the digits of `metadata.resourceVersion` in the object, without quotes.
    pub version_span: ByteSpan,
    /// Whether this bookmark ends a streamed list.
    pub initial_events_end: bool,
}

/// Finds the parts of one object.
///
/// Field values are unescaped strings, or the text of numbers and booleans. A value that is absent, `null`, an object or an
/// array counts as the field's default. If a key occurs twice, which the API server never writes, the last one counts; a
/// second `metadata` is an error, because other readers take the first one.
///
/// # Errors
/// The bytes are not one whole object in UTF-8 on one line, starting with its brace; or it is nested deeper than
/// [`DEPTH_MAX`]; or its name or resource version is missing or unusable.
///
/// [`DEPTH_MAX`]: super::DEPTH_MAX
pub fn scan_object(bytes: &[u8], fields: FieldTable) -> Result<ObjectParts<'_>, ScanError> {
    if let Some(offset) = memchr::memchr(b'\n', bytes) {
        // Frames end at newlines, so an object that contains one could not be sent to clients.
        return Err(ScanError::Expected {
            what: "an object on one line",
            offset,
        });
    }
    let mut json = at_brace(bytes)?;
    let parts = object_parts(&mut json, fields)?;
    json.end()?;
    Ok(parts)
}

/// Reads the object of a bookmark.
///
/// # Errors
/// The bytes are not one whole object in UTF-8, or the resource version is missing or unusable.
pub fn scan_bookmark(bytes: &[u8]) -> Result<Bookmark, ScanError> {
    let mut json = at_brace(bytes)?;
    let bookmark = bookmark_parts(&mut json)?;
    json.end()?;
    Ok(bookmark)
}

/// Spans count from the brace, so it must be the first byte.
fn at_brace(bytes: &[u8]) -> Result<Json<'_>, ScanError> {
    let json = Json::new(bytes)?;
    if bytes.first() == Some(&b'{') {
        return Ok(json);
    }
    json.expected("an object")
}

/// Reads an object at the position of `json`. Spans count from its opening brace.
pub(super) fn object_parts<'a>(
    json: &mut Json<'a>,
    fields: FieldTable,
) -> Result<ObjectParts<'a>, ScanError> {
    json.peek();
    let base = json.at();
    let mut found = ScanState {
        table: fields.fields(),
        parts: ObjectParts::before(fields),
        has_metadata: false,
        version: None,
    };
    let mut prefix = Prefix::None;
    json.object("an object", |json, key| {
        prefix.see(json, key, base);
        match &*key.decode()? {
            "metadata" => found.metadata(json),
            name => found.field(json, name, u32::MAX, 0),
        }
    })?;
    found.finish(prefix, base, json.at())
}

/// Reads the object of a bookmark at the position of `json`. The span counts from its opening brace.
pub(super) fn bookmark_parts(json: &mut Json<'_>) -> Result<Bookmark, ScanError> {
    json.peek();
    let base = json.at();
    let mut version = None;
    let mut initial_events_end = false;
    json.object("an object", |json, key| {
        if key.decode()? != "metadata" {
            return json.skip().map(drop);
        }
        json.object("metadata", |json, key| match &*key.decode()? {
            "resourceVersion" => {
                version = Some(json.version("metadata.resourceVersion")?);
                Ok(())
            }
            "annotations" if json.peek() == Some(b'{') => {
                json.object("metadata.annotations", |json, key| {
                    let value = json.scalar()?;
                    if key.decode()? == INITIAL_EVENTS_END {
                        initial_events_end = value.as_deref() == Some("true");
                    }
                    Ok(())
                })
            }
            _ => json.skip().map(drop),
        })
    })?;
    let (resource_version, at) = version.ok_or_else(|| ScanError::Missing {
        what: "metadata.resourceVersion",
        offset: json.at(),
    })?;
    Ok(Bookmark {
        resource_version,
        version_span: relative(at, base)?,
        initial_events_end,
    })
}

struct ScanState<'a> {
    /// At most 32 fields: the bits of a `u32` stand for them.
    table: &'static [SelectableField],
    parts: ObjectParts<'a>,
    has_metadata: bool,
    version: Option<(ResourceVersion, ByteSpan)>,
}

impl<'a> ScanState<'a> {
    fn metadata(&mut self, json: &mut Json<'a>) -> Result<(), ScanError> {
        if std::mem::replace(&mut self.has_metadata, true) {
            return json.expected("one metadata");
        }
        json.object("metadata", |json, key| {
            let slot = match &*key.decode()? {
                "name" => &mut self.parts.name,
                "namespace" => &mut self.parts.namespace,
                "uid" => &mut self.parts.uid,
                "resourceVersion" => {
                    self.version = Some(json.version("metadata.resourceVersion")?);
                    return Ok(());
                }
                "labels" => return self.labels(json),
                _ => return json.skip().map(drop),
            };
            *slot = json
                .string_or_null("a string in metadata")?
                .unwrap_or_default();
            Ok(())
        })
    }

    fn labels(&mut self, json: &mut Json<'a>) -> Result<(), ScanError> {
        self.parts.labels.clear();
        if json.peek() == Some(b'n') {
            return json.skip().map(drop);
        }
        json.object("metadata.labels", |json, key| {
            let value = json.string_or_null("a label's value")?.unwrap_or_default();
            self.parts.labels.push((key.decode()?, value));
            Ok(())
        })
    }

    /// Stores the value if a field of the table has this path, descends if some fields are below it, and skips it
    /// otherwise. `wanted` has a bit for each field whose first `depth` keys led here, so the recursion is no deeper than
    /// the longest path.
    fn field(
        &mut self,
        json: &mut Json<'a>,
        key: &str,
        wanted: u32,
        depth: usize,
    ) -> Result<(), ScanError> {
        let mut below = 0;
        for (index, entry) in self.table.iter().enumerate() {
            if wanted & 1 << index == 0 || entry.path.get(depth) != Some(&key) {
                continue;
            }
            if entry.path.len() == depth + 1 {
                if let Some(value) = json.scalar()? {
                    self.parts.fields[index] = value;
                }
                return Ok(());
            }
            below |= 1 << index;
        }
        if below == 0 || json.peek() != Some(b'{') {
            return json.skip().map(drop);
        }
        json.object("an object", |json, key| {
            self.field(json, &key.decode()?, below, depth + 1)
        })
    }

    fn finish(
        mut self,
        prefix: Prefix,
        base: usize,
        end: usize,
    ) -> Result<ObjectParts<'a>, ScanError> {
        let missing = |what| ScanError::Missing { what, offset: end };
        if self.parts.name.is_empty() {
            return Err(missing("metadata.name"));
        }
        let (version, at) = self
            .version
            .ok_or_else(|| missing("metadata.resourceVersion"))?;
        self.parts.resource_version = version;
        self.parts.version_span = relative(at, base)?;
        if let Prefix::Whole(len) = prefix {
            self.parts.type_prefix_len = len;
        }
        Ok(self.parts)
    }
}

/// How much of a leading `"kind":…,"apiVersion":…,` has been seen.
#[derive(Clone, Copy)]
enum Prefix {
    None,
    Kind,
    Both,
    Whole(u32),
    Other,
}

impl Prefix {
    /// Called for each key of the object, with `json` at its value.
    fn see(&mut self, json: &mut Json<'_>, key: JsonText<'_>, base: usize) {
        let is_string = json.peek() == Some(b'"');
        *self = match (*self, key.raw) {
            (Self::None, "kind") if is_string => Self::Kind,
            (Self::Kind, "apiVersion") if is_string => Self::Both,
            // The prefix ends before the third key's opening quote. The object's brace is not part of it.
            (Self::Both, _) => {
                u32::try_from(key.start - 1 - (base + 1)).map_or(Self::Other, Self::Whole)
            }
            (Self::Whole(len), _) => Self::Whole(len),
            _ => Self::Other,
        };
    }
}

fn relative(at: ByteSpan, base: usize) -> Result<ByteSpan, ScanError> {
    span(at.start as usize - base, at.end as usize - base)
}

#[cfg(test)]
mod tests;
