//! When an object was written, as far as its bytes tell. Read of few events only, so this is no part of the scan of each event.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use super::json::{Json, ScanError};
use super::walk::member;
use crate::resource::wire::{WireFields, WireValue};
use crate::resource::{ByteSpan, Encoding};

/// A holder's time that is further behind the API server's own is not that of the write: whoever may write a Lease chooses it.
const HOLDER_BEHIND_MAX: SignedDuration = SignedDuration::from_secs(60);

/// Where an object tells when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTimeSource {
    /// `metadata`: the newest time of its managed fields, or its creation. The API server writes both, in whole seconds.
    Metadata,
    /// `spec.renewTime` of a Lease, by its holder's clock, in microseconds; `metadata` if it has none.
    Lease,
}

impl WriteTimeSource {
    /// The source for objects of this group and resource.
    #[must_use]
    pub fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("coordination.k8s.io", "leases") => Self::Lease,
            _ => Self::Metadata,
        }
    }
}

/// The time of the write that changed `previous` to `object`; without `previous`, of the write that created it. `None` if they do not
/// tell: some writes change no managed field, such as the binding of a pod, and the object then bears the time of an earlier write.
#[must_use]
pub fn write_time(
    source: WriteTimeSource,
    encoding: Encoding,
    object: &[u8],
    previous: Option<&[u8]>,
) -> Option<Timestamp> {
    let written = newest(source, encoding, object)?;
    let before = previous.and_then(|previous| newest(source, encoding, previous));
    (before.is_none_or(|before| before < written)).then_some(written)
}

/// The newest time that an object bears. An object that cannot be read here tells none; the scanner has read it before.
fn newest(source: WriteTimeSource, encoding: Encoding, object: &[u8]) -> Option<Timestamp> {
    let has_renewal = source == WriteTimeSource::Lease;
    let renewed = match encoding {
        _ if !has_renewal => None,
        Encoding::Json => json_renewed(object).ok().flatten(),
        Encoding::Protobuf => times_within(object, SPEC, RENEWED),
    };
    let metadata = || match encoding {
        Encoding::Json => json_metadata(object).ok().flatten(),
        Encoding::Protobuf => times_within(object, METADATA, CREATED).max(managed(object)),
    };
    renewed
        .filter(|at| {
            metadata().is_none_or(|upstream| upstream.duration_since(*at) <= HOLDER_BEHIND_MAX)
        })
        .or_else(metadata)
}

fn parsed(text: Option<Cow<'_, str>>) -> Option<Timestamp> {
    text?.parse().ok()
}

fn json_metadata(object: &[u8]) -> Result<Option<Timestamp>, ScanError> {
    let Some(at) = member(object, "metadata")? else {
        return Ok(None);
    };
    let mut newest = None;
    let mut json = Json::new(at.of(object))?;
    json.object("metadata", |json, key| {
        match &*key.decode()? {
            "creationTimestamp" => newest = newest.max(parsed(json.scalar()?)),
            "managedFields" if json.peek() == Some(b'[') => {
                newest = newest.max(json_managed(json)?);
            }
            _ => json.skip().map(drop)?,
        }
        Ok(())
    })?;
    Ok(newest)
}

/// The newest time of the managed fields at the position of `json`.
fn json_managed(json: &mut Json<'_>) -> Result<Option<Timestamp>, ScanError> {
    let mut newest = None;
    json.array("metadata.managedFields", |json| {
        json.object("managed fields", |json, key| {
            match &*key.decode()? {
                "time" => newest = newest.max(parsed(json.scalar()?)),
                _ => json.skip().map(drop)?,
            }
            Ok(())
        })
    })?;
    Ok(newest)
}

fn json_renewed(object: &[u8]) -> Result<Option<Timestamp>, ScanError> {
    let Some(at) = member(object, "spec")? else {
        return Ok(None);
    };
    let mut renewed = None;
    let mut json = Json::new(at.of(object))?;
    json.object("spec", |json, key| {
        match &*key.decode()? {
            "renewTime" => renewed = parsed(json.scalar()?),
            _ => json.skip().map(drop)?,
        }
        Ok(())
    })?;
    Ok(renewed)
}

/// Numbers of fields: `ObjectMeta` and `LeaseSpec` in their objects, and the times in them.
const METADATA: u32 = 1;
const SPEC: u32 = 2;
const CREATED: u32 = 8;
const MANAGED: u32 = 17;
const MANAGED_TIME: u32 = 4;
const RENEWED: u32 = 4;

/// The messages with this number in the message at `within`, as far as it can be read.
fn messages(raw: &[u8], within: ByteSpan, number: u32) -> impl Iterator<Item = ByteSpan> {
    WireFields::within(raw, within)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.bytes())
}

fn whole(raw: &[u8]) -> ByteSpan {
    ByteSpan {
        start: 0,
        // Longer objects are refused where they are read.
        end: u32::try_from(raw.len()).unwrap_or(0),
    }
}

/// The newest of the times with the number `time` in the messages with the number `outer`.
fn times_within(raw: &[u8], outer: u32, time: u32) -> Option<Timestamp> {
    messages(raw, whole(raw), outer)
        .flat_map(|message| messages(raw, message, time))
        .filter_map(|at| timestamp(raw, at))
        .max()
}

/// The newest time of the managed fields.
fn managed(raw: &[u8]) -> Option<Timestamp> {
    messages(raw, whole(raw), METADATA)
        .flat_map(|metadata| messages(raw, metadata, MANAGED))
        .flat_map(|entry| messages(raw, entry, MANAGED_TIME))
        .filter_map(|at| timestamp(raw, at))
        .max()
}

/// A message of seconds since 1970 and nanoseconds. A field that is absent is zero.
fn timestamp(raw: &[u8], at: ByteSpan) -> Option<Timestamp> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in WireFields::within(raw, at) {
        let field = field.ok()?;
        let WireValue::Varint(value) = field.value else {
            continue;
        };
        match field.number {
            1 => seconds = value.cast_signed(),
            2 => nanos = i32::try_from(value).ok()?,
            _ => {}
        }
    }
    Timestamp::new(seconds, nanos).ok()
}

#[cfg(test)]
mod tests;
