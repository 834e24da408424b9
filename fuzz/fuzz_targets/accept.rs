//! Content negotiation never panics, and parts of a header that have no meaning do not change its outcome.
#![no_main]

use kube_fanout::protocol::request::{Accept, AcceptPurpose, JsonChoice, Representation};
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
    let accept = Accept::parse([header]);
    let same = [&[header, "text/plain"][..], &[&padded], &[&noted]];
    let same = same.map(|values| Accept::parse(values.iter().copied()));
    for other in &same {
        assert_eq!(other.refusal_form(), accept.refusal_form(), "{other:?}");
        assert_eq!(other.wanted_table(), accept.wanted_table(), "{other:?}");
        assert_eq!(other.json_choice(), accept.json_choice(), "{other:?}");
    }
    for layout in [Layout::Typed, Layout::Dynamic] {
        for purpose in [AcceptPurpose::List, AcceptPurpose::Watch] {
            let found = accept.negotiate(layout, purpose);
            for other in &same {
                assert_eq!(other.negotiate(layout, purpose), found, "{other:?}");
            }
            if !header.contains(',') {
                check_single(&accept, found, purpose);
            }
        }
    }
});

/// For a single element it is clear what a server that only has JSON does.
fn check_single(accept: &Accept, found: Representation, purpose: AcceptPurpose) {
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
    assert_eq!(accept.json_choice(), Some(expected));
    // Watches are never indented, so their result does not show it.
    if purpose == AcceptPurpose::List {
        let refusal = match (found, expected) {
            (Representation::Cached(_), JsonChoice::Whole) => StatusForm::Json,
            _ => StatusForm::Indented,
        };
        assert_eq!(accept.json_refusal_form(), refusal);
    }
}
