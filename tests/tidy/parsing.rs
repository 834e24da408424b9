//! The head of a request is parsed in one place; everything else reads the result.

use crate::source::{Source, sources};
use crate::{assert_no_violations, assert_violation};

/// Each parser of a part of the head, and the only file that calls it outside of `protocol`.
const PARSERS: [(&str, &str); 5] = [
    (
        "RequestInfo::of(",
        "src/serving/src/serve/client_request.rs",
    ),
    ("RequestTarget::parse(", ""),
    // Of requests that an audit log tells of.
    ("Query::parse(", "src/assess/audit_entry.rs"),
    ("Accept::of(", ""),
    ("Accept::parse(", ""),
];

/// The room of the parsers.
const EXEMPT: &str = "src/protocol/";

fn violations(source: &Source) -> Vec<String> {
    if source.is_test() || source.path.starts_with(EXEMPT) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        for (parser, place) in PARSERS {
            if line.contains(parser) && source.path != place {
                found.push(format!(
                    "{}:{number}: {parser}…) is called; take the part from RequestInfo",
                    source.path
                ));
            }
        }
    }
    found
}

#[test]
fn a_request_is_parsed_once() {
    let found = sources("src").iter().flat_map(violations).collect();
    assert_no_violations("parsing of requests", found);
}

#[test]
fn a_second_parse_is_found() {
    let code = "fn f(uri: &Uri) { let query = Query::parse(uri.query()); }";
    let planted = Source::new("src/gateway/src/forwarded.rs", code);
    assert_violation(
        &violations(&planted),
        "src/gateway/src/forwarded.rs:1: Query",
    );
    let parser = Source::new("src/protocol/src/request/info.rs", code);
    assert_eq!(violations(&parser), Vec::<String>::new());
}
