//! Content negotiation never panics, whatever the header.
#![no_main]

use kube_fanout::downstream::request::{Purpose, negotiate};
use kube_fanout::resource::Layout;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    for layout in [Layout::Typed, Layout::Dynamic] {
        for purpose in [Purpose::List, Purpose::Watch] {
            let _ = negotiate(&[header], layout, purpose);
        }
    }
});
