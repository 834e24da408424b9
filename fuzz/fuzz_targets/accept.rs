//! Content negotiation never panics, and parts of a header that have no meaning do not change its outcome.
#![no_main]

use kube_fanout::protocol::request::{Accept, AcceptPurpose};
use kube_fanout::resource::Layout;
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
    }
    for layout in [Layout::Typed, Layout::Dynamic] {
        for purpose in [AcceptPurpose::List, AcceptPurpose::Watch] {
            let found = accept.negotiate(layout, purpose);
            for other in &same {
                assert_eq!(other.negotiate(layout, purpose), found, "{other:?}");
            }
        }
    }
});
