//! Captured objects of an API server in every form, compared with the same conversion of whole JSON values.

use serde_json::Value;

use super::*;
use crate::decode::{Frames, WatchLine, object_in, scan_watch};
use crate::resource::{EventKind, FieldTable, Gvr};
use crate::view::MetaVersion;

fn kind(layout: Layout, encoding: Encoding) -> ResourceKind {
    ResourceKind {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".into(),
        list_kind: "PodList".into(),
        namespaced: true,
        layout,
        encoding,
        warnings: Vec::new(),
    }
}

/// The frames of a captured stream that carry an object, with that object.
fn captured(name: &str, encoding: Encoding) -> Vec<(Bytes, EventKind, Object)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captured");
    let extension = match encoding {
        Encoding::Json => "lines",
        Encoding::Protobuf => "frames",
    };
    let mut frames = Frames::new(encoding, 1 << 20);
    frames.push(&std::fs::read(format!("{folder}/{name}.{extension}")).unwrap());
    let mut found = Vec::new();
    while let Some(frame) = frames.next_frame().unwrap() {
        if let WatchLine::Event {
            kind,
            object,
            parts,
        } = scan_watch(encoding, frame, FieldTable::default()).unwrap()
        {
            let object = object_in(encoding, frame, object, parts).unwrap();
            found.push((Bytes::copy_from_slice(frame), kind, object));
        }
    }
    assert!(!found.is_empty(), "{name}");
    found
}

fn formats(encoding: Encoding) -> Vec<ObjectFormat> {
    let forms = [
        ObjectPart::Whole,
        ObjectPart::Metadata(MetaVersion::V1),
        ObjectPart::Metadata(MetaVersion::V1Beta1),
    ];
    let all = forms.into_iter().flat_map(|form| {
        [ManagedFields::Kept, ManagedFields::Dropped].map(|managed_fields| ObjectFormat {
            encoding,
            form,
            managed_fields,
        })
    });
    all.filter(|format| *format != ObjectFormat::whole(encoding))
        .collect()
}

/// The expected object, converted as a JSON value.
fn expected(object: &[u8], format: ObjectFormat) -> Value {
    let mut object: Value = serde_json::from_slice(object).unwrap();
    if format.managed_fields == ManagedFields::Dropped {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
    }
    match format.form {
        ObjectPart::Whole => object,
        ObjectPart::Metadata(version) => serde_json::json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": version.api_version(),
            "metadata": object["metadata"],
        }),
    }
}

#[test]
fn json_projections_keep_exactly_the_requested_parts() {
    for (name, layout) in [("pods", Layout::Typed), ("widgets", Layout::Dynamic)] {
        for (line, kind_of_event, object) in captured(name, Encoding::Json) {
            for format in formats(Encoding::Json) {
                let projection = Projection::new(format, &kind(layout, Encoding::Json)).unwrap();
                let line = projection.frame(&line).unwrap();
                assert!(line.ends_with(b"}\n"));
                let event: Value = serde_json::from_slice(&line).unwrap();
                let wanted = expected(object.bytes(), format);
                assert_eq!(event["type"], kind_of_event.as_str());
                assert_eq!(event["object"], wanted, "{name} {format:?}");
                let item = [b"{", &*projection.list_item(&object).unwrap()].concat();
                let mut item: Value = serde_json::from_slice(&item).unwrap();
                if format.form == ObjectPart::Whole && layout == Layout::Typed {
                    // Items of built-in kinds have no kind and apiVersion.
                    item["kind"] = wanted["kind"].clone();
                    item["apiVersion"] = wanted["apiVersion"].clone();
                }
                assert_eq!(item, wanted, "{name} {format:?}");
            }
        }
    }
}

#[test]
fn frames_and_list_items_in_protobuf_hold_the_same_object() {
    let sources = [
        ("pods", Layout::Typed, Encoding::Protobuf),
        ("widgets", Layout::Dynamic, Encoding::Json),
    ];
    for (name, layout, source) in sources {
        for (frame, kind_of_event, object) in captured(name, source) {
            for format in formats(Encoding::Protobuf) {
                let is_whole = format.form == ObjectPart::Whole;
                let projection = Projection::new(format, &kind(layout, source)).unwrap();
                if source == Encoding::Json && is_whole {
                    assert_eq!(
                        projection.frame(&frame),
                        Err(ProjectionError::Untranslatable)
                    );
                    continue;
                }
                let frame = projection.frame(&frame).unwrap();
                let event = scan_envelope(Encoding::Protobuf, &frame).unwrap();
                assert_eq!(event.kind.event_kind(), Some(kind_of_event));
                let raw = event.object.of(&frame);
                let item = projection.list_item(&object).unwrap();
                let (_, number) = format.form.list_fields();
                let mut wanted = Vec::new();
                put_bytes(&mut wanted, number, raw);
                assert_eq!(item, wanted);
                let holds = |text: &[u8]| memchr::memmem::find(raw, text).is_some();
                assert!(holds(object.key().name().as_bytes()));
                let is_kept = format.managed_fields == ManagedFields::Kept;
                assert_eq!(holds(b"FieldsV1"), is_kept, "{name} {format:?}");
            }
        }
    }
}

/// An object that is not from a file: the JSON as a cache would hold it.
fn object_of(json: &str) -> Object {
    let parts = crate::decode::scan_object(json.as_bytes(), FieldTable::default()).unwrap();
    Object::new(parts, json.as_bytes())
}

fn all_projections(layout: Layout) -> impl Iterator<Item = Projection> {
    [Encoding::Json, Encoding::Protobuf]
        .into_iter()
        .flat_map(formats)
        .filter(|format| format.encoding == Encoding::Json || format.form != ObjectPart::Whole)
        .filter_map(move |format| Projection::new(format, &kind(layout, Encoding::Json)))
}

#[test]
fn objects_of_the_maximum_depth_are_projected_in_every_form() {
    let nested = |depth: usize| {
        format!(
            "{}{}",
            r#"{"k":"#.repeat(depth - 1) + "{}",
            "}".repeat(depth - 1)
        )
    };
    // Inside the metadata, four levels are open already: the object, metadata, the list and its entry.
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"W","metadata":{{"managedFields":[{{"fieldsV1":{},"manager":"m"}}],"name":"n","odd":{},"resourceVersion":"7"}},"spec":{}}}"#,
        nested(9_996),
        nested(9_998),
        nested(9_999),
    );
    let object = object_of(&json);
    for layout in [Layout::Typed, Layout::Dynamic] {
        for projection in all_projections(layout) {
            let item = projection.list_item(&object).unwrap();
            let frame = projection
                .frame(&object.frame(EventKind::Modified))
                .unwrap();
            let is_kept = projection.rendition().managed_fields == ManagedFields::Kept;
            let depth = memchr::memmem::find_iter(&item, br#"{"k":"#).count();
            if projection.rendition().form != ObjectPart::Whole {
                let odd = if projection.rendition().encoding == Encoding::Json
                    && layout == Layout::Typed
                {
                    9_997
                } else {
                    0
                };
                assert_eq!(
                    depth,
                    odd + if is_kept { 9_995 } else { 0 },
                    "{projection:?}"
                );
            }
            assert_eq!(
                memchr::memmem::find_iter(&frame, br#"{"k":"#).count(),
                depth
            );
        }
    }
}

#[test]
fn metadata_is_found_however_its_key_is_written() {
    let json = r#"{"apiVersion":"v1","\u006bind":"W","\u006detadata":{"n\u0061me":"n","managedFields":[{"manager":"mgr"}],"resourceVersion":"7"},"spec":{"size":1}}"#;
    let object = object_of(json);
    for layout in [Layout::Typed, Layout::Dynamic] {
        for projection in all_projections(layout) {
            let item = projection.list_item(&object).unwrap();
            let holds = |text: &str| memchr::memmem::find(&item, text.as_bytes()).is_some();
            assert!(
                holds("resourceVersion\":\"7\"") || holds("\u{1}7"),
                "{projection:?}"
            );
            let is_kept = projection.rendition().managed_fields == ManagedFields::Kept;
            assert_eq!(holds("mgr"), is_kept, "{projection:?}: {item:?}");
            if projection.rendition().encoding == Encoding::Json {
                let whole = [b"{", &*item].concat();
                let item: Value = serde_json::from_slice(&whole).unwrap();
                assert_eq!(item["metadata"]["name"], "n", "{projection:?}");
            }
        }
    }
    assert!(Projection::metadata_of(&object).is_some());
}

#[test]
fn an_item_of_metadata_alone_is_its_beginning_and_the_metadata_as_it_stands() {
    let json = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","resourceVersion":"7"},"spec":{}}"#;
    let object = object_of(json);
    let metadata = Projection::metadata_of(&object)
        .unwrap()
        .of(json.as_bytes());
    assert_eq!(metadata, br#"{"name":"n","resourceVersion":"7"}"#);
    let mut spliced = 0;
    for layout in [Layout::Typed, Layout::Dynamic] {
        for projection in all_projections(layout) {
            let format = projection.rendition();
            let is_plain = layout == Layout::Typed
                && format.encoding == Encoding::Json
                && format.form != ObjectPart::Whole
                && format.managed_fields == ManagedFields::Kept;
            let begin = projection.before_metadata();
            assert_eq!(begin.is_some(), is_plain, "{projection:?}");
            let Some(begin) = begin else { continue };
            let item = [begin.as_bytes(), metadata, b"}"].concat();
            assert_eq!(projection.list_item(&object).unwrap(), item);
            spliced += 1;
        }
    }
    assert_eq!(spliced, 2, "one for each version of metadata");
    for source in [Encoding::Json, Encoding::Protobuf] {
        let format = ObjectFormat {
            encoding: Encoding::Json,
            form: ObjectPart::Metadata(MetaVersion::V1),
            managed_fields: ManagedFields::Kept,
        };
        let projection = Projection::new(format, &kind(Layout::Typed, source)).unwrap();
        let is_spliced = projection.before_metadata().is_some();
        assert_eq!(is_spliced, source == Encoding::Json);
    }
}

/// The API server reads an unstructured object's metadata member by member; a member of the wrong type counts as absent.
#[test]
fn members_of_another_type_are_left_out_as_the_api_server_does_it() {
    let odd = r#"{"apiVersion":"v1","kind":"W","metadata":{"annotations":{"a":1},"creationTimestamp":"today","finalizers":{},"generateName":7,"generation":"x","managedFields":{"a":1},"name":"n","ownerReferences":{"a":1},"resourceVersion":"7","uid":"u"}}"#;
    let plain =
        r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"n","resourceVersion":"7","uid":"u"}}"#;
    for projection in all_projections(Layout::Dynamic) {
        let [odd, plain] = [odd, plain].map(|json| projection.list_item(&object_of(json)).unwrap());
        if projection.rendition().encoding == Encoding::Protobuf {
            assert_eq!(odd, plain, "{projection:?}");
        } else if projection.rendition().form != ObjectPart::Whole {
            let object: Value = serde_json::from_slice(&[b"{", &*odd].concat()).unwrap();
            let metadata = &object["metadata"];
            assert_eq!(metadata["name"], "n");
            assert!(metadata["ownerReferences"].is_null() && metadata["managedFields"].is_null());
        }
    }
}
