//! Content negotiation never panics, and parts of a header that have no meaning do not change its outcome.
#![no_main]

use kube_fanout::protocol::request::{
    AcceptPurpose, JsonChoice, Representation, json_refusal_form, negotiate, refusal_form,
    wanted_table, wish,
};
use kube_fanout::protocol::status::StatusForm;
use kube_fanout::resource::{Encoding, Layout};
use kube_fanout::view::{ManagedFields, ObjectPart};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    // An empty header counts as absent, so white space must not be added to it.
    let padded = header.replace(',', " , ");
    let noted = header
        .split(',')
        .map(|element| match element.trim_matches(' ') {
            "" => element.to_owned(),
            element => format!("{element};charset=utf-8"),
        })
        .collect::<Vec<_>>()
        .join(",");
    let same = [&[header, "text/plain"][..], &[&padded], &[&noted]];
    for other in same {
        assert_eq!(refusal_form(other), refusal_form(&[header]), "{other:?}");
        assert_eq!(wanted_table(other), wanted_table(&[header]), "{other:?}");
        assert_eq!(wish(other), wish(&[header]), "{other:?}");
    }
    for layout in [Layout::Typed, Layout::Dynamic] {
        for purpose in [AcceptPurpose::List, AcceptPurpose::Watch] {
            let found = negotiate(&[header], layout, purpose);
            for other in same {
                assert_eq!(negotiate(other, layout, purpose), found, "{other:?}");
            }
            if !header.contains(',') {
                check_single(header, found, purpose);
            }
        }
    }
});

/// For a single element it is clear what a server that only has JSON does.
fn check_single(header: &str, found: Representation, purpose: AcceptPurpose) {
    let format = match found {
        Representation::Cached(format) | Representation::Indented(format) => format,
        Representation::Forward => return,
    };
    if format.encoding != Encoding::Json || format.managed_fields != ManagedFields::Kept {
        return;
    }
    let expected = match (format.form, purpose) {
        (ObjectPart::Whole, _) => JsonChoice::Whole,
        (ObjectPart::Metadata(version), AcceptPurpose::List) => JsonChoice::MetadataList(version),
        (ObjectPart::Metadata(version), AcceptPurpose::Watch) => JsonChoice::Metadata(version),
    };
    assert_eq!(wish(&[header]), Some(expected));
    // Watches are never indented, so their result does not show it.
    if purpose == AcceptPurpose::List {
        let refusal = match (found, expected) {
            (Representation::Cached(_), JsonChoice::Whole) => StatusForm::Json,
            _ => StatusForm::Indented,
        };
        assert_eq!(json_refusal_form(&[header]), refusal);
    }
}
