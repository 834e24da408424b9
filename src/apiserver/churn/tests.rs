//! Tests that all steps are accepted, repeatable, and keep to the requested size and number of objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::patch::Patch;
use super::super::storage::{Preconditions, Stamp, Storage, WritablePart, WriteMode, WriteTarget};
use super::*;

const STAMP: Stamp<'static> = Stamp {
    now: "2026-11-21T08:16:18Z",
    uid: "08e571ab-4b9a-4110-93a5-c2d72ea803b1",
    entropy: 0,
};

fn catalogue() -> Arc<Catalogue> {
    Arc::new(Catalogue::new(&["widgets.v1.example.com=Widget"
        .parse()
        .unwrap()]))
}

fn churn(counts: &[&str], object_len: usize) -> Churn {
    let counts: Vec<InitialCount> = counts.iter().map(|text| text.parse().unwrap()).collect();
    Churn::new(&catalogue(), &counts, object_len, 1).unwrap()
}

fn apply(storage: &mut Storage, step: ChurnStep) {
    let target = WriteTarget {
        kind_index: step.kind_index,
        key: step.key,
        part: WritablePart::Whole,
        mode: WriteMode::Keep,
    };
    let outcome = match step.act {
        ChurnWrite::Create(object) => storage.create(&target, object, STAMP),
        ChurnWrite::Patch(patch) => storage.patch(&target, &Patch::Merge(patch)),
        ChurnWrite::Delete => storage.delete(&target, &Preconditions::default(), STAMP),
    };
    let change = outcome
        .unwrap()
        .change
        .expect("every step changes an object");
    assert_eq!(change.key, target.key);
}

#[test]
fn every_step_can_be_taken_and_the_number_of_objects_stays() {
    let mut churn = churn(&["pods=60", "configmaps=30", "widgets=10", "nodes=5"], 1200);
    let mut storage = Storage::new(catalogue());
    let mut now = 0..;
    while let Some(step) = churn.seed(now.next().unwrap()) {
        apply(&mut storage, step);
    }
    for _ in 0..2000 {
        let step = churn.step(now.next().unwrap()).unwrap();
        apply(&mut storage, step);
    }
    for (plural, target_count) in [
        ("pods", 60),
        ("configmaps", 30),
        ("widgets", 10),
        ("nodes", 5),
    ] {
        let kind_index = storage.catalogue().index_of_plural(plural).unwrap();
        let count = storage.object_count(kind_index);
        assert!(
            (target_count - 5..=target_count).contains(&count),
            "{plural}: {count}"
        );
    }
}

#[test]
fn objects_are_about_as_long_as_asked() {
    for plural in ["pods", "configmaps", "endpointslices", "widgets"] {
        let mut churn = churn(&[&format!("{plural}=3")], 2000);
        let mut storage = Storage::new(catalogue());
        while let Some(step) = churn.seed(1_700_000_000_000_000_000) {
            let kind_index = step.kind_index;
            apply(&mut storage, step);
            let (_, bytes) = storage.objects(kind_index, "").next().unwrap();
            assert!(
                (1950..=2050).contains(&bytes.len()),
                "{plural}: {}",
                bytes.len()
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_steps() {
    let steps = || {
        let mut churn = churn(&["pods=10"], 500);
        let mut steps: Vec<ChurnStep> = std::iter::from_fn(|| churn.seed(1)).collect();
        steps.extend((0..100).filter_map(|now| churn.step(now)));
        steps
    };
    assert_eq!(steps(), steps());
}

#[test]
fn pods_are_spread_over_namespaces_and_nodes() {
    let mut churn = churn(&["pods=400"], 0);
    let (mut namespaces, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    while let Some(ChurnStep {
        key,
        act: ChurnWrite::Create(pod),
        ..
    }) = churn.seed(0)
    {
        namespaces.insert(key.namespace().to_owned());
        nodes.insert(pod["spec"]["nodeName"].as_str().unwrap().to_owned());
    }
    assert_eq!((namespaces.len(), nodes.len()), (20, 100));
}

#[test]
fn counts_are_read_from_flags() {
    assert_eq!(
        "pods=10".parse(),
        Ok(InitialCount {
            resource: "pods".into(),
            count: 10
        })
    );
    for text in ["pods", "=1", "pods=-1", "pods=1000000"] {
        assert!(text.parse::<InitialCount>().is_err(), "{text}");
    }
    let counts = ["nopes=1".parse().unwrap()];
    assert_eq!(
        Churn::new(&catalogue(), &counts, 0, 0)
            .unwrap_err()
            .to_string(),
        "no resource \"nopes\" is served"
    );
}
