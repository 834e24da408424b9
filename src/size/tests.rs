//! The table of docs/SCALING.md, the model's directions, and its bounds.

use super::*;

const REPLICA: ReplicaSpec = ReplicaSpec {
    cores: 4.0,
    network_bits: 10e9,
    history_bytes_max: (256 << 20) as f64,
    history_events_max: 102_400.0,
    http2: false,
    tls: true,
};

fn workload(watches: u32, events: f64, event_bytes: f64, object_bytes: f64) -> Workload {
    Workload {
        watches,
        events,
        own_events: 0.0,
        event_bytes,
        upstream_events: events,
        object_bytes,
        resources: 12,
        encodings: 1,
        listed_bytes: 0.0,
        lists: 0,
    }
}

/// A row of the table "Sizes": its workload, replicas, cores and MiB of memory, and how far memory may be off, as it is rounded there.
#[track_caller]
fn assert_row(workload: &Workload, replicas: u32, cores: f64, limit: f64) {
    let plan = plan(workload, REPLICA).unwrap();
    assert_eq!(plan.replicas, replicas);
    assert!((plan.cores - cores).abs() <= 0.05, "{} cores", plan.cores);
    let mib = plan.memory_limit / f64::from(1 << 20);
    assert!((mib / limit - 1.0).abs() <= 0.05, "{mib} MiB");
}

#[test]
fn the_table_of_the_document() {
    assert_row(&workload(500, 5.0, 2_000.0, 100e6), 2, 0.02, 210.0);
    assert_row(&workload(2_000, 10.0, 1_000.0, 300e6), 2, 0.2, 570.0);
    assert_row(&workload(5_000, 20.0, 1_000.0, 1e9), 2, 0.9, 1.8 * 1_024.0);
    assert_row(&workload(10_000, 20.0, 1_500.0, 2e9), 2, 1.8, 3.5 * 1_024.0);
    assert_row(&workload(20_000, 20.0, 1_500.0, 2e9), 3, 1.8, 3.5 * 1_024.0);
    let large = Workload {
        upstream_events: 100.0,
        ..workload(50_000, 10.0, 1_500.0, 4e9)
    };
    assert_row(&large, 6, 0.9, 6.7 * 1_024.0);
}

/// Two of the measured points of the document.
#[test]
fn measured_points() {
    let selectors = Workload {
        own_events: 0.2,
        upstream_events: 1_000.0,
        ..workload(5_000, 0.0, 1_000.0, 10e6)
    };
    let cores = with_replicas(&selectors, REPLICA, 2).cores;
    assert!((0.9..1.1).contains(&(cores / 0.136)), "{cores} cores");
    let start = workload(1, 0.0, 1_000.0, f64::from(426 << 20));
    let mib = with_replicas(&start, REPLICA, 2).memory / f64::from(1 << 20);
    assert!((mib / 553.0 - 1.0).abs() < 0.01, "{mib} MiB");
}

#[test]
fn more_of_anything_never_needs_less() {
    let small = workload(5_000, 20.0, 1_000.0, 1e9);
    let larger = [
        Workload {
            watches: 9_000,
            ..small
        },
        Workload {
            events: 90.0,
            ..small
        },
        Workload {
            own_events: 5.0,
            ..small
        },
        Workload {
            event_bytes: 9_000.0,
            ..small
        },
        Workload {
            upstream_events: 2_000.0,
            ..small
        },
        Workload {
            object_bytes: 4e9,
            ..small
        },
        Workload {
            encodings: 2,
            ..small
        },
        Workload {
            listed_bytes: 1e9,
            ..small
        },
        Workload {
            lists: 5_000,
            ..small
        },
    ];
    let before = plan(&small, REPLICA).unwrap();
    for workload in larger {
        let after = plan(&workload, REPLICA).unwrap();
        let all = |plan: &ReplicaPlan| {
            f64::from(plan.replicas - 1) * (plan.cores + plan.memory + plan.bits_out + plan.bits_in)
        };
        assert!(after.replicas >= before.replicas, "{workload:?}");
        assert!(all(&after) > all(&before), "{workload:?}");
    }
}

/// A gateway has one watch upstream for each encoding, and reads each event from each.
#[test]
fn a_second_encoding_is_read_too() {
    let busy = Workload {
        upstream_events: 10_000.0,
        ..workload(1, 0.0, 100.0, 0.0)
    };
    let both = Workload {
        encodings: 2,
        ..busy
    };
    let cores = |workload| with_replicas(workload, REPLICA, 2).cores;
    assert!((cores(&both) / cores(&busy) - 2.0).abs() < 0.01);
}

#[test]
fn history_is_bounded_in_bytes_and_in_events() {
    let busy = Workload {
        upstream_events: 20_000.0,
        ..workload(1, 0.0, 100_000.0, 0.0)
    };
    let memory = |replica| with_replicas(&busy, replica, 2).memory;
    let most = 12.0 * REPLICA.history_bytes_max;
    assert!(memory(REPLICA) < PROCESS_BYTES + OVERHEAD * most + 100_000.0);
    let fewer = ReplicaSpec {
        history_events_max: 100.0,
        ..REPLICA
    };
    assert!(memory(fewer) < PROCESS_BYTES + OVERHEAD * 12.0 * 100.0 * 100_000.0 + 100_000.0);
}

/// History is kept as long as memory allows.
#[test]
fn without_a_bound_of_memory_all_histories_are_planned_for() {
    let slow = workload(1, 1.0, 1_000.0, 0.0);
    let plan = with_replicas(&slow, REPLICA, 2);
    let history = 12.0 * 102_400.0 * 1_000.0 * OVERHEAD;
    assert!((plan.memory_unbounded - history - PROCESS_BYTES).abs() < 100_000.0);
    assert!(plan.memory < PROCESS_BYTES + 75.0 * 1_000.0 * OVERHEAD + 100_000.0);
    let report = text(&plan, REPLICA);
    assert!(
        report.contains("1485 MiB in time without --memory-max"),
        "{report}"
    );
}

#[test]
fn the_network_alone_asks_for_more_replicas() {
    let slow = ReplicaSpec {
        network_bits: 1e9,
        ..REPLICA
    };
    let plan = plan(&workload(5_000, 20.0, 1_000.0, 1e8), slow).unwrap();
    assert_eq!(plan.replicas, 3);
}

#[test]
fn what_no_number_of_replicas_carries_is_refused() {
    let busy = Workload {
        upstream_events: 1e6,
        ..workload(1, 0.0, 1.0, 0.0)
    };
    assert!(matches!(plan(&busy, REPLICA), Err(SizeError::Cores { .. })));
    let many = workload(u32::MAX, 1.0, 1.0, 0.0);
    assert_eq!(plan(&many, REPLICA), Err(SizeError::Replicas));
}

#[test]
fn a_report_names_what_to_set() {
    let small = plan(&workload(500, 5.0, 2_000.0, 100e6), REPLICA).unwrap();
    let report = text(&small, REPLICA);
    for part in [
        "replicas              2",
        "--memory-max          1",
        "within about 10 %",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let large = plan(&workload(20_000, 20.0, 1_500.0, 2e9), REPLICA).unwrap();
    assert!(text(&large, REPLICA).contains("extrapolation"));
    let document: serde_json::Value = serde_json::from_str(&json(&large)).unwrap();
    assert_eq!(document["replicas"], 3);
    assert_eq!(document["replica"]["watches"], 10_000);
}
