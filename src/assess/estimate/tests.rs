//! Figures computed by hand.

use super::super::audit_entry::WatchScope;
use super::super::client::{CredentialKind, MoveMethod};
use super::super::usage::{ClientFacts, ReadUsage};
use super::*;
use crate::config::{CacheLists, ResourcePattern};

fn pods() -> GroupResource {
    GroupResource::new("", "pods").unwrap()
}

fn assumptions() -> Assumptions {
    Assumptions {
        gateways: 2.0,
        encodings: 1.0,
        cached: CacheLists {
            allowed: vec![ResourcePattern::ALL],
            denied: vec!["secrets".parse().unwrap()],
        },
    }
}

/// 100 kubelets and 3 informers watch pods, of which 10 change a second.
fn cluster() -> ServerRates {
    let pods_rates = ResourceRates {
        watches: 103.0,
        watch_requests: 0.3,
        list_requests: 0.1,
        // Each change to one kubelet and three informers, and 103/60 bookmarks and 2 initial events a second.
        events: 40.0 + 103.0 / 60.0 + 2.0,
        event_bytes: 1_000.0 * (40.0 + 103.0 / 60.0 + 2.0),
        initial_events: 2.0,
        list_bytes: 5_000.0,
        changes: 10.0,
        objects: Some(1_000.0),
    };
    let nodes = ResourceRates {
        objects: Some(100.0),
        ..ResourceRates::default()
    };
    ServerRates {
        server_count: 1,
        window_seconds: 600.0,
        cpu: 1.0,
        resources: [
            (pods(), pods_rates),
            (GroupResource::new("", "nodes").unwrap(), nodes),
        ]
        .into(),
        notes: Vec::new(),
    }
}

fn row(
    client: &AuditedClient,
    scope: WatchScope,
    watches: f64,
    requests: u64,
) -> ((AuditedClient, Option<GroupResource>), ReadUsage) {
    let mut usage = ReadUsage {
        watch_requests: requests,
        questions: 1,
        ..ReadUsage::default()
    };
    usage.watch_seconds[scope as usize] = watches * 600.0;
    ((client.clone(), Some(pods())), usage)
}

fn kubelets() -> AuditedClient {
    AuditedClient::new(
        "system:node:a",
        CredentialKind::Certificate,
        "kubelet/v1.36.0",
    )
}

fn informers() -> AuditedClient {
    AuditedClient::new(
        "system:serviceaccount:a:b",
        CredentialKind::Token,
        "informer",
    )
}

fn audit() -> UsageSums {
    let mut informer = row(&informers(), WatchScope::Cluster, 3.0, 6);
    informer.1.list_requests = 60;
    informer.1.consistent = 30;
    let facts = ClientFacts {
        is_in_pod: true,
        tokens: 3,
        nodes: 3,
    };
    UsageSums {
        window_seconds: 600.0,
        rows: vec![row(&kubelets(), WatchScope::Node, 100.0, 174), informer],
        facts: [(informers(), facts)].into(),
        ..UsageSums::default()
    }
}

/// Requests a second of the caches of both gateways: a watch every 450 s, three lists a minute to compare.
const UPKEEP: f64 = 2.0 * (1.0 / 450.0 + 3.0 / 60.0);

#[track_caller]
fn close(found: f64, expected: f64) {
    let bound = 1e-6 * expected.abs().max(1e-3);
    assert!(
        (found - expected).abs() < bound,
        "{found} instead of {expected}"
    );
}

#[test]
fn deliveries_are_divided_by_what_watches_select() {
    let estimate = estimate(&cluster(), Some(&audit()), &assumptions());
    let [informer, kubelet] = &*estimate.rows else {
        panic!("{:?}", estimate.rows)
    };
    // The informers' watches weigh 3, the kubelets' 100 × 1/100. Of 2 initial events and the bookmarks each watch has an equal part.
    let equal = 103.0 / 60.0 + 2.0;
    close(informer.now.events, 40.0 * 3.0 / 4.0 + equal * 3.0 / 103.0);
    close(kubelet.now.events, 40.0 / 4.0 + equal * 100.0 / 103.0);
    // Only the informers list.
    close(kubelet.now.bytes, 1_000.0 * kubelet.now.events);
    close(informer.now.bytes, 1_000.0 * informer.now.events + 5_000.0);
}

#[test]
fn watches_of_everything_have_every_change() {
    let mut audit = audit();
    // Labels that select no more than a half of all changes.
    let labelled = AuditedClient::new("alice", CredentialKind::Unknown, "operator");
    audit.rows = vec![
        row(&informers(), WatchScope::Cluster, 3.0, 0),
        row(&labelled, WatchScope::Selected, 100.0, 0),
    ];
    let rates = cluster();
    let equal = (103.0 / 60.0 + 2.0) / 103.0;
    let events_of = |estimate: &Estimate, class| {
        let row = estimate.rows.iter().find(|row| row.class == class);
        row.unwrap().now.events
    };
    let found = estimate(&rates, Some(&audit), &assumptions());
    close(events_of(&found, ClientClass::Pod), 30.0 + 3.0 * equal);
    close(
        events_of(&found, ClientClass::External),
        10.0 + 100.0 * equal,
    );
    // Without the 10 changes a second that the informers could have had, all are weighed.
    let mut fewer = cluster();
    fewer.resources.entry(pods()).or_default().changes = 50.0;
    let found = estimate(&fewer, Some(&audit), &assumptions());
    close(
        events_of(&found, ClientClass::Pod),
        40.0 * 3.0 / 103.0 + 3.0 * equal,
    );
}

#[test]
fn what_gateways_ask_is_subtracted_by_the_watches_that_move() {
    let estimate = estimate(&cluster(), Some(&audit()), &assumptions());
    let [informer, kubelet] = &*estimate.rows else {
        panic!("{:?}", estimate.rows)
    };
    // Two gateways with one encoding: 20 of 10 changes, and their upkeep.
    close(informer.asked.events, 20.0 * 3.0 / 103.0);
    close(
        kubelet.net().events,
        kubelet.now.events - 20.0 * 100.0 / 103.0,
    );
    // 174 watch starts in 600 s, less the upkeep and one question in 3,120 s.
    close(
        kubelet.net().requests,
        0.29 - UPKEEP * 100.0 / 103.0 - 1.0 / 3_120.0,
    );
    // Of three tokens, 600/2,880 were replaced within the window; half of the lists want the newest state.
    let reviews = 3.0 / (1.0 + 600.0 / 2_880.0) / 2_880.0;
    let asked = UPKEEP * 3.0 / 103.0 + 1.0 / 3_120.0 + 30.0 / 600.0 + reviews;
    close(informer.net().requests, 66.0 / 600.0 - asked);
    close(informer.cpu_at_most, 13.5e-6 * informer.net().events);
    // Beside its caches each gateway watches seven resources for itself, of which pods change.
    close(estimate.asked.watches, 2.0 + 14.0);
    close(estimate.asked.events, 20.0 + 20.0);
    close(estimate.taken.watches, 103.0);
}

#[test]
fn informers_come_first_and_kubelets_last() {
    let estimate = estimate(&cluster(), Some(&audit()), &assumptions());
    let order: Vec<_> = estimate
        .rows
        .iter()
        .map(|row| (row.order, row.class.method()))
        .collect();
    assert_eq!(
        order,
        [
            (Some(1), MoveMethod::Inject),
            // They save less than the gateways ask for them.
            (None, MoveMethod::Relay),
        ]
    );
    let unexplained = estimate.unexplained.unwrap();
    close(unexplained.watches, 0.0);
}

#[test]
fn what_no_audit_log_explains_is_a_row_of_its_own_and_not_moved() {
    let mut audit = audit();
    audit.rows.remove(0);
    let estimate = estimate(&cluster(), Some(&audit), &assumptions());
    let rest = estimate
        .rows
        .iter()
        .find(|row| row.class == ClientClass::Unknown)
        .unwrap();
    close(rest.now.watches, 100.0);
    // 0.3 starts and 0.1 lists a second, less the 6 and 60 of 600 s that are explained.
    close(rest.now.requests, 0.29);
    assert_eq!((rest.taken, rest.order), (GatewayFlow::default(), None));
    close(estimate.unexplained.unwrap().watches, 100.0);
    // One watch of each gateway is paid by those that move alone.
    let informer = estimate
        .rows
        .iter()
        .find(|row| row.class == ClientClass::Pod)
        .unwrap();
    close(informer.asked.events, 20.0);
}

#[test]
fn a_log_that_tells_of_more_requests_than_the_servers_counted_is_scaled() {
    let mut rates = cluster();
    // The audit log has 180 watch starts and 60 lists in 600 s, 0.4 a second.
    let counted = rates.resources.entry(pods()).or_default();
    (counted.watch_requests, counted.list_requests) = (0.1, 0.1);
    let estimate = estimate(&rates, Some(&audit()), &assumptions());
    close(estimate.now.requests, 0.2);
    let informer = estimate
        .rows
        .iter()
        .find(|row| row.class == ClientClass::Pod);
    // Of the starts a third is left.
    close(informer.unwrap().taken.requests, 0.01 / 3.0 + 0.1);
}

#[test]
fn without_an_audit_log_resources_are_rows() {
    let estimate = estimate(&cluster(), None, &assumptions());
    let [row] = &*estimate.rows else {
        panic!("{:?}", estimate.rows)
    };
    assert_eq!((&row.client, row.order), (&None, Some(1)));
    close(row.now.events, 40.0 + 103.0 / 60.0 + 2.0);
    // Each list may want the newest state, which a gateway asks for.
    close(row.net().requests, 0.3 - UPKEEP);
    assert!(estimate.unexplained.is_none());
}

#[test]
fn what_a_gateway_forwards_saves_nothing() {
    let rates = cluster();
    let pods_rates = rates.resources[&pods()];
    for (group, resource, objects, reason) in [
        ("", "secrets", Some(1.0), "excluded by"),
        ("", "events", Some(1.0), "events are never cached"),
        ("metrics.k8s.io", "pods", None, "does not store it"),
    ] {
        let mut rates = cluster();
        let name = GroupResource::new(group, resource).unwrap();
        let rate = ResourceRates {
            objects,
            ..pods_rates
        };
        rates.resources.insert(name.clone(), rate);
        let estimate = estimate(&rates, None, &assumptions());
        let row = estimate
            .rows
            .iter()
            .find(|row| row.resource.as_ref() == Some(&name));
        let row = row.unwrap();
        assert!(row.forward_reason.unwrap().contains(reason), "{row:?}");
        assert_eq!(
            (row.taken, row.asked),
            (GatewayFlow::default(), GatewayFlow::default())
        );
    }
}

#[test]
fn cpu_is_bounded_by_what_the_servers_use() {
    let mut rates = cluster();
    rates.cpu = 1e-5;
    let estimate = estimate(&rates, None, &assumptions());
    assert_eq!(
        (estimate.rows[0].cpu_at_most, estimate.cpu_at_most),
        (1e-5, 1e-5)
    );
}

#[test]
fn custom_resources_have_one_encoding() {
    let assumptions = Assumptions {
        encodings: 2.0,
        ..assumptions()
    };
    let rate = ResourceRates {
        changes: 1.0,
        ..ResourceRates::default()
    };
    let watches = |group| {
        let name = GroupResource::new(group, "widgets").unwrap();
        assumptions.cache_cost(&name, &rate).watches
    };
    assert_eq!((watches("apps"), watches("example.com")), (4.0, 2.0));
}

#[test]
fn nothing_measured_is_nothing_saved() {
    let rates = ServerRates::default();
    let estimate = estimate(&rates, Some(&UsageSums::default()), &assumptions());
    assert!(estimate.rows.is_empty());
    assert_eq!(estimate.taken, GatewayFlow::default());
    assert_eq!(estimate.asked, GatewayFlow::default());
}
