//! Statuses as a real server writes them, in both encodings.

use super::super::tests::captured;
use super::*;

#[test]
fn error_statuses_are_equal_from_json_and_protobuf() {
    for name in [
        "400",
        "404",
        "404-group",
        "404-bare",
        "410",
        "410-exact",
        "422",
        "504",
    ] {
        let body = captured(&format!("status-{name}.pb"));
        let status = scan_protobuf_status(&body);
        assert_eq!(
            status,
            scan_status(&captured(&format!("status-{name}.json"))),
            "{name}"
        );
        let raw = Unknown::read_body(&body).unwrap().raw;
        assert_eq!(scan_protobuf_status(raw.of(&body)), status, "{name}");
    }
    let too_large = scan_protobuf_status(&captured("status-504.pb"));
    assert!(too_large.version_too_large);
    assert_eq!(too_large.retry_after_seconds, Some(1));
    assert!(scan_protobuf_status(&captured("status-410.pb")).is_expired());
}

#[test]
fn other_answers_are_read_as_scan_status_reads_them() {
    let json = br#"{"kind":"Status","code":429,"reason":"TooManyRequests"}"#;
    assert_eq!(scan_protobuf_status(json).code, 429);
    for bytes in [&b"upstream connect error"[..], b"", b"k8s\0"] {
        assert_eq!(scan_protobuf_status(bytes), scan_status(bytes));
    }
    let pods = captured("pods.list");
    assert_eq!(scan_protobuf_status(&pods).code, 500);
}
