//! From an estimate to what is shown of it, and bad input as a whole.

use super::assumptions::GatewayFlow;
use super::client::{AuditedClient, ClientClass, CredentialKind};
use super::estimate::{Estimate, EstimateRow};
use super::group_resource::GroupResource;
use super::*;

fn document(agent: &str) -> AssessDocument {
    let now = GatewayFlow {
        watches: 1_000.0,
        requests: 3.0,
        events: 12_345.6,
        bytes: 2.5e6,
    };
    let row = EstimateRow {
        client: Some(AuditedClient::new(
            "system:serviceaccount:a:b",
            CredentialKind::Token,
            agent,
        )),
        class: ClientClass::Pod,
        resource: GroupResource::new("apps", "deployments"),
        forward_reason: None,
        now,
        lists: 1.0,
        taken: now,
        asked: now.times(0.1),
        cpu_at_most: 0.15,
        order: Some(1),
    };
    let estimate = Estimate {
        rows: vec![row],
        now,
        taken: now,
        asked: now.times(0.1),
        cpu_at_most: 0.15,
        unexplained: Some(now.times(0.25)),
    };
    let frame = AssessFrame {
        window_seconds: 600.0,
        servers: 1,
        audit_seconds: Some(590.0),
        gateways: 2,
        encodings: 1,
    };
    AssessDocument::new(&estimate, &frame, vec!["a <note>".to_owned()])
}

#[test]
fn the_table_shows_rows_totals_and_notes() {
    let text = table::table(&document("informer"));
    for words in [
        "1 API server, scrapes 600 s apart, audit logs of 590 s; 2 gateways, 1 encoding",
        "net events/s (c)",
        "CPU at most (b)",
        "deployments.apps",
        "12,346",
        "11,111",
        "inject",
        "Saved: 900 watches, 2.70 requests/s, 11,111 events/s, 2.25 MB/s; CPU at most 0.15 cores (a bound)",
        "Not explained by the audit log: 25 % of the watches",
        "Note: a <note>",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn the_page_escapes_what_clients_chose_and_explains_every_column() {
    let document = document("\"><script>alert(1)</script>&'");
    let page = page::page(&document);
    assert!(!page.contains("<script"), "{page}");
    assert!(
        page.contains("&quot;&gt;&lt;script&gt;alert(1)&lt;"),
        "{page}"
    );
    assert!(page.contains("a &lt;note&gt;"));
    assert!(!page.contains("http://") && !page.contains("https://"));
    for column in &document.columns {
        let title = format!("<dt>{} ({})</dt>", column.title, column.basis.as_str());
        assert!(page.contains(&title), "{title}");
    }
}

#[test]
fn each_column_is_a_member_of_each_row() {
    let json: serde_json::Value = serde_json::from_str(&document("a").json()).unwrap();
    let row = json["rows"][0].as_object().unwrap();
    let columns = json["columns"].as_array().unwrap();
    for column in columns {
        let name = column["name"].as_str().unwrap();
        assert!(row.contains_key(name), "{name}");
    }
    assert_eq!(row.len(), columns.len());
    assert_eq!(document("a").rows[0].cells().len(), columns.len());
    assert_eq!((&row["how"], &row["order"]), (&"inject".into(), &1.into()));
    assert_eq!(json["totals"]["net"]["watches"], 900.0);
}

#[test]
fn audit_logs_of_another_time_are_named() {
    let rates = ServerRates {
        window_seconds: 600.0,
        ..ServerRates::default()
    };
    let notes = |begins_at, window_seconds| {
        let usage = UsageSums {
            begins_at,
            window_seconds,
            ..UsageSums::default()
        };
        window_note(&usage, &rates, Some(10_000.0)).is_some()
    };
    assert!(!notes(9_400.0, 600.0));
    assert!(!notes(9_350.0, 640.0));
    assert!(notes(9_400.0, 60.0));
    // From long before to the end.
    assert!(!notes(3_400.0, 6_600.0));
    assert!(notes(5_000.0, 600.0));
    // The scrape was up to two minutes after the garbage collection.
    assert!(!notes(9_500.0, 600.0));
}
