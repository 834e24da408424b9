//! Content negotiation never panics, and what does not matter in a header does not change its outcome.
#![no_main]

use kube_fanout::downstream::request::{
    Purpose, Representation, Wish, negotiate, takes_plain_json, wish,
};
use kube_fanout::resource::Layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    // An empty header counts as none, so nothing may be put into it.
    let padded = header.replace(',', " , ");
    let noted = header
        .split(',')
        .map(|element| match element.trim_matches(' ') {
            "" => element.to_owned(),
            element => format!("{element};charset=utf-8"),
        })
        .collect::<Vec<_>>()
        .join(",");
    for layout in [Layout::Typed, Layout::Dynamic] {
        for purpose in [Purpose::List, Purpose::Watch] {
            let found = negotiate(&[header], layout, purpose);
            assert_eq!(negotiate(&[header, "text/plain"], layout, purpose), found);
            assert_eq!(negotiate(&[&padded], layout, purpose), found, "{padded:?}");
            assert_eq!(negotiate(&[&noted], layout, purpose), found, "{noted:?}");
            if header.contains(',') {
                continue;
            }
            // Of a single element it is clear what a server of nothing but JSON makes of it.
            let expected = match (found, purpose) {
                (Representation::Json, _) => Wish::Whole,
                (Representation::Metadata(version), Purpose::List) => Wish::MetadataList(version),
                (Representation::Metadata(version), Purpose::Watch) => Wish::Metadata(version),
                (Representation::Forward, _) => continue,
            };
            assert_eq!(wish(&[header]), Some(expected));
            assert_eq!(takes_plain_json(&[header]), expected == Wish::Whole);
        }
    }
});
