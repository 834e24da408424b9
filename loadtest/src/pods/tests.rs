//! The generated pods, and the hash that stores are compared by.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

use super::{Fleet, digest};

const FLEET: Fleet = Fleet {
    pods: 20_000,
    namespaces: 50,
    nodes: 200,
};

#[test]
fn every_pod_has_a_name_of_its_own_and_all_nodes_and_namespaces_are_used() {
    let all = 0..FLEET.pods;
    let names: BTreeSet<_> = all
        .clone()
        .map(|number| (FLEET.namespace(number), FLEET.name(number)))
        .collect();
    assert_eq!(names.len(), FLEET.pods);
    let namespaces: BTreeSet<_> = names.iter().map(|(namespace, _)| namespace).collect();
    assert_eq!(namespaces.len(), FLEET.namespaces);
    let mut nodes = BTreeMap::new();
    for number in all {
        *nodes.entry(FLEET.node(number)).or_insert(0) += 1;
    }
    assert_eq!(nodes.len(), FLEET.nodes);
    assert_eq!(nodes.values().min(), nodes.values().max());
}

#[test]
fn a_pod_loses_nothing_when_it_is_read_as_a_typed_one() {
    let pod = FLEET.pod(4_711);
    let typed: Pod = serde_json::from_value(pod.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), pod);
}

#[test]
fn the_hash_is_that_of_the_sorted_lines() {
    let lines = |order: [&str; 2]| order.map(str::to_owned).to_vec();
    let one = digest(lines(["b/x/2\n", "a/x/1\n"]));
    assert_eq!(one, digest(lines(["a/x/1\n", "b/x/2\n"])));
    // printf 'a/x/1\nb/x/2\n' | sha256sum
    assert_eq!(
        one,
        "3d4750f8eb544c9ed65f03db487dc987522e9f29daf8c0a86807db4f87a856e4"
    );
}
