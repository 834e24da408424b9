//! Which lists need no permit, and that they visit few objects.

use super::*;
use crate::resource::FieldTable;
use crate::selector::{FieldSelector, ShardSelector};
use crate::view::walk::Walk;

const SHARD: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";

/// Every combination of a scope and conditions.
fn selectors(kind: &ResourceKind) -> Vec<Selector> {
    let mut all = Vec::new();
    for namespace in [None, Some("a"), Some("none")] {
        for labels in ["", "tier=x", "tier=none"] {
            for fields in [
                "",
                "metadata.name=7",
                "metadata.name!=7",
                "metadata.namespace=b",
            ] {
                for shard in [None, Some(SHARD)] {
                    all.push(Selector {
                        namespace: namespace.map(str::to_owned),
                        labels: LabelSelector::parse(labels).unwrap(),
                        fields: FieldSelector::parse(fields, FieldTable::of(&kind.gvr)).unwrap(),
                        shard: shard.map(|text| ShardSelector::parse(text).unwrap()),
                    });
                }
            }
        }
    }
    all
}

/// How many objects the search visits.
fn visited(snapshot: &Snapshot, request: &PageRequest<'_>) -> usize {
    let mut walk = Walk::new(
        &snapshot.objects,
        request.selector,
        request.kind,
        request.start,
    );
    let (mut visited, mut found) = (0, 0);
    while let Some(object) = walk.next(&snapshot.objects) {
        visited += 1;
        if request.limit == Some(found) {
            break;
        }
        found += u64::from(request.selector.matches(object));
    }
    visited
}

#[test]
fn a_list_that_needs_no_permit_visits_few_objects_whatever_it_selects() {
    let keys: Vec<_> = (0..400)
        .map(|at| format!("{}/{at}", ["a", "b"][at % 2]))
        .collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let snapshot = snapshot(Layout::Typed, &keys);
    let kind = kind(Layout::Typed);
    let (mut short, mut long) = (0, 0);
    for selector in selectors(&kind) {
        for (start, limit) in [
            (None, None),
            (Some("1"), None),
            (None, Some(1)),
            (Some("1"), Some(100)),
            (None, Some(101)),
        ] {
            let request = PageRequest {
                kind: &kind,
                selector: &selector,
                start,
                limit,
            };
            let visited = visited(&snapshot, &request);
            if request.is_short() {
                short += 1;
                assert!(visited <= 101, "{visited}: {request:?}");
            } else {
                long += usize::from(visited > 101);
            }
        }
    }
    assert!(short > 0 && long > 0);
}
