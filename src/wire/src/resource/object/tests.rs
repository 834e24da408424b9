//! Objects with texts inside and outside their JSON: every part that is packed can be read back.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;

const JSON: &str =
    r#"{"kind":"K","metadata":{"name":"n1","resourceVersion":"42","uid":"u"},"x":"value"}"#;

/// A text that is a slice of [`JSON`], or a text of its own.
#[derive(Clone, Debug)]
enum Source {
    Slice(usize, usize),
    Own(String),
}

impl Source {
    fn text(&self) -> Cow<'static, str> {
        match self {
            Self::Slice(start, len) => JSON[*start..*start + *len].into(),
            Self::Own(text) => text.clone().into(),
        }
    }
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        (0..JSON.len() - 8, 0..8_usize).prop_map(|(start, len)| Source::Slice(start, len)),
        ".{0,6}".prop_map(Source::Own),
    ]
}

fn digits() -> ByteSpan {
    let start = JSON.find("42").unwrap();
    ByteSpan {
        start: offset(start),
        end: offset(start + 2),
    }
}

fn parts(name: &str) -> ObjectParts<'_> {
    ObjectParts {
        name: name.into(),
        resource_version: ResourceVersion(42),
        version_span: digits(),
        type_prefix_len: 11,
        ..ObjectParts::default()
    }
}

proptest! {
    #[test]
    fn every_text_comes_back(
        names in (source(), source(), source()),
        fields in vec(source(), 0..12),
        labels in vec((source(), source()), 0..40),
        // From 64 KiB on, spans have four-byte numbers.
        padding in of(65_000..67_000_usize),
        protobuf: bool,
    ) {
        let json = format!("{JSON}{}", " ".repeat(padding.unwrap_or_default()));
        let parts = ObjectParts {
            namespace: names.0.text(),
            uid: names.2.text(),
            fields: fields.iter().map(Source::text).collect(),
            labels: labels.iter().map(|(key, value)| (key.text(), value.text())).collect(),
            ..parts(match &names.1 {
                Source::Slice(start, len) => &json[*start..start + len],
                Source::Own(text) => text,
            })
        };
        let expected = parts.clone();
        let object = if protobuf {
            Object::in_protobuf(parts, b"type", json.as_bytes())
        } else {
            Object::new(parts, json.as_bytes())
        };
        prop_assert_eq!(object.bytes(), json.as_bytes());
        prop_assert_eq!(object.key(), KeyRef::new(&expected.namespace, &expected.name));
        prop_assert_eq!(object.key().name(), &*expected.name);
        prop_assert_eq!(object.uid(), &*expected.uid);
        prop_assert_eq!(object.resource_version(), ResourceVersion(42));
        prop_assert_eq!(object.0.version_span(), digits());
        for (index, field) in expected.fields.iter().enumerate() {
            prop_assert_eq!(object.field(index), &**field);
        }
        prop_assert_eq!(object.field(expected.fields.len()), "");
        let actual: Vec<_> = object.labels().collect();
        let mut expected_labels: Vec<_> = expected.labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        expected_labels.sort_by_key(|(key, _)| *key);
        prop_assert_eq!(&actual, &expected_labels);
        for (key, _) in expected_labels {
            let first = actual.iter().find(|(other, _)| *other == key);
            prop_assert_eq!(object.label(key), first.map(|(_, value)| *value));
        }
        prop_assert_eq!(object.label("no such label"), None);
    }
}

#[test]
fn labels_and_names_are_stored_as_offsets_into_the_object() {
    let place = |text: &str| {
        let start = JSON.find(text).unwrap();
        Cow::from(&JSON[start..start + text.len()])
    };
    let object = |label: Cow<'_, str>| {
        let labels = vec![(label, Cow::default())];
        Object::new(
            ObjectParts {
                labels,
                ..parts("n1")
            },
            JSON.as_bytes(),
        )
    };
    let (borrowed, owned) = (object(place("value")), object("value".into()));
    assert_eq!(borrowed.memory_len() + "value".len(), owned.memory_len());
    assert_eq!(borrowed.label("value"), owned.label("value"));
}

#[test]
fn bytes_are_shared_and_outlive_the_object() {
    let object = Object::new(parts("n1"), JSON.as_bytes());
    let (at, item) = (object.bytes().as_ptr(), object.list_item(Layout::Typed));
    let frame = object.frame_of(EventKind::Added).unwrap();
    drop(object);
    assert_eq!(item, &JSON.as_bytes()[12..]);
    assert_eq!(item.as_ptr().addr(), at.addr() + 12);
    assert_eq!(frame, format!("{{\"type\":\"ADDED\",\"object\":{JSON}}}\n"));
}

#[test]
fn another_version_changes_nothing_else() {
    let labels = vec![("value".into(), "v".into())];
    let fields = vec!["f".into(), "".into()];
    let object = Object::new(
        ObjectParts {
            labels,
            fields,
            ..parts("n1")
        },
        JSON.as_bytes(),
    );
    let later = object.at_version(ResourceVersion(12_345));
    assert_eq!(later.bytes(), JSON.replace("42", "12345").as_bytes());
    assert_eq!(later.resource_version(), ResourceVersion(12_345));
    assert_eq!((later.key(), later.uid()), (object.key(), object.uid()));
    assert!(later.labels().eq(object.labels()));
    assert_eq!((later.field(0), later.field(1)), ("f", ""));
    assert_eq!(later.frame_of(EventKind::Added), None);
    assert_eq!(
        later.frame_of(EventKind::Deleted),
        Some(object.deleted_frame(ResourceVersion(12_345)))
    );
}
