//! Selectors compared with the responses of an API server, and round trips through the canonical form.

use proptest::prelude::*;

use super::samples::{object, pods};
use super::*;

const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[track_caller]
fn labels_refused(text: &str, message: &str) {
    let fault = LabelSelector::parse(text).map_err(|e| e.to_string());
    assert_eq!(fault, Err(message.to_owned()), "{text:?}");
}

#[test]
fn label_grammar_faults_read_as_on_the_server() {
    for (text, message) in [
        (
            "===",
            "found '==', expected: !, identifier, or 'end of string'",
        ),
        (
            ",a",
            "found ',', expected: !, identifier, or 'end of string'",
        ),
        (
            "=a",
            "found '=', expected: !, identifier, or 'end of string'",
        ),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b)", "found ')', expected: ',' or 'end of string'"),
        ("a in (b))", "found ')', expected: ',' or 'end of string'"),
        ("a=b\0c", "found 'c', expected: ',' or 'end of string'"),
        ("a>5,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,=", "found '=', expected: identifier after ','"),
    ] {
        labels_refused(text, message);
    }
    for (text, message) in [
        ("!", "found '', expected: identifier"),
        ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a\tb", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!b", "found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in", "found '' expected: '('"),
        ("a notin", "found '' expected: '('"),
        ("a in b", "found 'b' expected: '('"),
        ("a in (", "found '', expected: ',', ')' or identifier"),
        ("a in (()", "found '(', expected: ',', ')' or identifier"),
        ("a notin (=)", "found '=', expected: ',', ')' or identifier"),
        ("a in (b", "found '', expected: ',' or ')'"),
        ("a in (b c)", "found 'c', expected: ',' or ')'"),
        ("a in (b,", "found '', expected: ',', or identifier"),
        ("a in (b,!)", "found '!', expected: ',', or identifier"),
        ("a in (b,,)", "found ')', expected: ',', or identifier"),
        ("a in (,,)", "found ')', expected: ',', or identifier"),
        ("a notin (,,)", "found ')', expected: ',', or identifier"),
        ("a in (b,,,,)", "found ')', expected: ',', or identifier"),
        ("a in (,,", "found '', expected: ',', or identifier"),
        ("a in (b,,(", "found '(', expected: ',', or identifier"),
        ("a=(b)", "found '(', expected: identifier"),
    ] {
        labels_refused(text, &format!("unable to parse requirement: {message}"));
    }
}

#[test]
fn bad_label_keys_and_values_read_as_on_the_server() {
    let long = "x".repeat(73);
    for (text, field, value, detail) in [
        (
            "a/b/c",
            "<nil>",
            "a/b/c",
            format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        ),
        (
            "/a=b",
            "<nil>",
            "/a",
            "prefix part must be non-empty".into(),
        ),
        (
            "a/=b",
            "<nil>",
            "a/",
            format!("name part must be non-empty; name part {KEY_RULE}"),
        ),
        ("A..b/c=d", "<nil>", "A..b/c", PREFIX_RULE.into()),
        (
            "-a/-b",
            "<nil>",
            "-a/-b",
            format!("{PREFIX_RULE}; name part {KEY_RULE}"),
        ),
        ("é=b", "<nil>", "é", format!("name part {KEY_RULE}")),
        (
            "a>gt",
            "values[0]",
            "gt",
            "for 'Gt', 'Lt' operators, the value must be an integer".into(),
        ),
        (
            "a>",
            "values[0]",
            "",
            "for 'Gt', 'Lt' operators, the value must be an integer".into(),
        ),
        (
            "a>99999999999999999999",
            "values[0]",
            "99999999999999999999",
            "for 'Gt', 'Lt' operators, the value must be an integer".into(),
        ),
        ("a>-5", "values[0][a]", "-5", VALUE_RULE.into()),
        ("a=-x", "values[0][a]", "-x", VALUE_RULE.into()),
        (
            &format!("a={long}"),
            "values[0][a]",
            &long,
            "must be no more than 63 bytes".into(),
        ),
    ] {
        labels_refused(
            text,
            &format!("unable to parse requirement: {field}: Invalid value: \"{value}\": {detail}"),
        );
    }
    labels_refused(
        "a in (-x,-y)",
        &format!(
            "unable to parse requirement: [values[0][a]: Invalid value: \"-x\": {VALUE_RULE}, values[1][a]: Invalid value: \"-y\": {VALUE_RULE}]"
        ),
    );
}

#[test]
fn labels_may_be_so_long_and_no_longer() {
    let prefix = |len: usize| "p".repeat(len);
    for (key, value) in [
        ("n".repeat(63), "v".repeat(63)),
        (format!("{}/n", prefix(253)), "v".to_owned()),
        ("a-b.c/n".to_owned(), "v".to_owned()),
    ] {
        assert!(LabelSelector::parse(&format!("{key}={value}")).is_ok());
    }
    for (key, fault) in [
        ("n".repeat(64), "name part must be no more than 63 bytes"),
        (
            format!("{}/n", prefix(254)),
            "prefix part must be no more than 253 bytes",
        ),
    ] {
        labels_refused(
            &format!("{key}=v"),
            &format!("unable to parse requirement: <nil>: Invalid value: \"{key}\": {fault}"),
        );
    }
    assert!(LabelSelector::parse(&format!("a={}", "v".repeat(64))).is_err());
}

#[test]
fn labels_match_as_upstream_matches_them() {
    let labelled = object(&[("app", "web"), ("n", "7"), ("empty", "")]);
    for (text, expected) in [
        ("", true),
        ("\0junk(", true),
        ("app", true),
        ("!app", false),
        ("app=web", true),
        ("app==web,n", true),
        ("app!=web", false),
        ("absent!=web", true),
        ("absent notin (web)", true),
        ("absent=", false),
        ("absent in ()", false),
        ("empty=", true),
        ("empty", true),
        ("empty in ()", true),
        ("empty in (,a)", true),
        ("app in (db,web)", true),
        ("app notin (db,web)", false),
        ("n>6", true),
        ("n>7", false),
        ("n<8", true),
        ("n<7", false),
        ("app>1", false),
        ("absent<1", false),
        ("app=\0web", true),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches(&labelled), expected, "{text:?}");
        let looked_up = selector.matches_labels(|key| labelled.label(key));
        assert_eq!(looked_up, expected, "{text:?}");
    }
    let keywords = LabelSelector::parse("in in (in),notin").unwrap();
    assert!(keywords.matches(&object(&[("in", "in"), ("notin", "")])));
}

#[test]
fn differently_written_label_selectors_are_equal() {
    for (text, canonical) in [
        (" b = c , a", "a,b=c"),
        ("a in (x)", "a=x"),
        ("a==x,a=x", "a=x"),
        ("a notin (x)", "a!=x"),
        ("a in (c,,b,c)", "a in (,b,c)"),
        ("a in ()", "a="),
        ("a in (,)", "a="),
        ("a in (b,)", "a in (,b)"),
        ("a in (,b)", "a in (,b)"),
        ("a in (,,b)", "a in (,b)"),
        ("a in (,,,)", "a="),
        ("a in (b,,,)", "a in (,b)"),
        ("a notin (,b)", "a notin (,b)"),
        ("a notin ()", "a!="),
        ("a notin(b,a)", "a notin (a,b)"),
        ("!b,a>007", "a>7,!b"),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.to_string(), canonical);
        assert_eq!(LabelSelector::parse(canonical).unwrap(), selector);
    }
}

#[test]
fn labels_are_required_by_what_no_object_without_them_meets() {
    let selector = LabelSelector::parse("a=1,b in (2),c in (3,4),d!=5,e,!f,g>6,h=").unwrap();
    let required = selector.required().map(|(key, values)| {
        let values = values.map(|values| Vec::from_iter(values.iter()).join("|"));
        format!("{key}:{}", values.unwrap_or_default())
    });
    let required: Vec<_> = required.collect();
    assert_eq!(required, ["a:1", "b:2", "c:3|4", "e:", "g:", "h:"]);
}

#[test]
fn field_selector_faults_read_as_on_the_server() {
    for (text, message) in [
        (
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "x==y,metadata.name",
            "invalid selector: 'x==y,metadata.name'; can't understand 'metadata.name'",
        ),
        ("=,b", "invalid selector: '=,b'; can't understand 'b'"),
        (
            "b=c=d,a",
            "invalid selector: 'b=c=d,a'; can't understand 'a'",
        ),
        (
            "a=b=c",
            "invalid field selector: unescaped character in value: 61",
        ),
        (
            "metadata.name==a=b",
            "invalid field selector: unescaped character in value: 61",
        ),
        (
            "metadata.name=a\\z",
            "invalid field selector: invalid escape sequence: \\z",
        ),
        (
            "metadata.name=a\\",
            "invalid field selector: invalid escape sequence: \\",
        ),
    ] {
        let fault = FieldSelector::parse(text, pods());
        assert_eq!(fault, Err(FieldSelectorError::Syntax(message.into())));
    }
    for (text, label) in [("spec.nope=1", "spec.nope"), ("a!b=c", "a!b"), ("=x", "")] {
        let fault = FieldSelector::parse(text, pods());
        assert_eq!(fault, Err(FieldSelectorError::UnknownLabel(label.into())));
    }
}

#[test]
fn fields_match_the_objects_values() {
    let pod = object(&[]);
    for (text, expected) in [
        ("", true),
        (",", true),
        ("=", true),
        ("metadata.name=p", true),
        ("metadata.name=p,metadata.name=q", false),
        ("metadata.name!=p", false),
        ("metadata.namespace==ns", true),
        ("spec.nodeName=node-1", true),
        ("spec.host=node-1", true),
        ("spec.nodeName=", false),
        ("spec.hostNetwork=false", true),
        ("status.podIPs=", true),
        ("status.podIPs=10.0.0.1", false),
        ("status.phase!=Running", true),
    ] {
        let selector = FieldSelector::parse(text, pods()).unwrap();
        assert_eq!(selector.matches(&pod), expected, "{text:?}");
    }
}

#[test]
fn pinned_values_are_those_of_equalities() {
    let text = "spec.host=n,metadata.namespace==ns,metadata.name=a\\,b,status.phase!=Failed";
    let selector = FieldSelector::parse(text, pods()).unwrap();
    assert_eq!(selector.pinned_name(), Some("a,b"));
    assert_eq!(selector.pinned_namespace(), Some("ns"));
    assert_eq!(selector.pinned_fields().collect::<Vec<_>>(), [(0, "n")]);
    assert_eq!(
        selector.to_string(),
        "metadata.name=a\\,b,metadata.namespace=ns,spec.nodeName=n,status.phase!=Failed"
    );
    let others = FieldSelector::parse("metadata.name!=a,metadata.namespace!=ns", pods()).unwrap();
    assert_eq!(
        (others.pinned_name(), others.pinned_namespace()),
        (None, None)
    );
    assert!(selector.names_namespace() && others.names_namespace());
    for text in ["", "metadata.name=a,spec.nodeName=n"] {
        assert!(
            !FieldSelector::parse(text, pods())
                .unwrap()
                .names_namespace()
        );
    }
    let odd = pinned_in("x!=1,x=2,x!=3,y=4", "x");
    assert_eq!(odd.as_deref(), Some("2"));
    assert_eq!(pinned_in("x!=1", "x"), None);
    assert_eq!(
        pinned_in("x.y=1,metadata.name==q", "metadata.name"),
        Some("q".into())
    );
    assert_eq!(pinned_in("metadata.name=q,broken", "metadata.name"), None);
}

#[test]
fn a_selector_joins_scope_labels_and_fields() {
    let pod = object(&[("app", "web")]);
    let mut selector = Selector::default();
    assert!(selector.is_everything() && selector.matches(&pod));
    selector.namespace = Some("ns".into());
    assert!(!selector.is_everything() && selector.matches(&pod));
    selector.labels = LabelSelector::parse("app=db").unwrap();
    assert!(!selector.matches(&pod));
    selector.labels = LabelSelector::parse("app=web").unwrap();
    selector.fields = FieldSelector::named("other");
    assert!(!selector.matches(&pod));
    selector.namespace = Some("n".into());
    selector.fields = FieldSelector::named("p");
    assert!(!selector.matches(&pod));
}

#[test]
fn terms_of_all_parts_are_counted() {
    let labels = LabelSelector::parse("a=b,c in (d,e),!f").unwrap();
    let fields = FieldSelector::parse("metadata.name=n,metadata.namespace!=m", pods()).unwrap();
    let of_labels = labels.term_count();
    let of_fields = fields.term_count();
    let shard = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    let selector = Selector {
        labels,
        fields,
        shard: Some(ShardSelector::parse(shard).unwrap()),
        namespace: Some("n".into()),
    };
    assert!(of_labels >= 3 && of_fields == 2, "{of_labels} {of_fields}");
    assert_eq!(selector.term_count(), of_labels + of_fields + 1);
    assert_eq!(Selector::default().term_count(), 0);
}

#[test]
fn quoting_is_gos() {
    for (text, expected) in [
        ("a\"b\\", r#""a\"b\\""#),
        ("\0\x07\x7f\u{a0}é", r#""\x00\a\x7f\u00a0é""#),
        ("'\n\u{1f600}\u{e000}", "\"'\\n\u{1f600}\\ue000\""),
    ] {
        assert_eq!(quoted(text), expected);
    }
    assert_eq!(quoted_byte(0x81), r"'\u0081'");
    assert_eq!(quoted_byte(b'\''), r"'\''");
    assert_eq!(quoted_byte(b'"'), "'\"'");
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC*|[ab/=!<>(), \\\\.0-9\0-]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
        let text = text.replace('a', "metadata.name").replace('b', "spec.nodeName");
        if let Ok(selector) = FieldSelector::parse(&text, pods()) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string(), pods()), Ok(selector));
        }
    }

    #[test]
    fn canonical_labels_parse_to_themselves(terms in proptest::collection::vec(
        "!?[a-c]|[a-c](=|==|!=)[a-c]?|[a-c] (in|notin) \\([a-c]?(,[a-c]){0,3},?\\)|[a-c][<>][0-9]{1,3}", 0..5)) {
        let selector = LabelSelector::parse(&terms.join(",")).unwrap();
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }

    #[test]
    fn canonical_fields_parse_to_themselves(value in "\\PC{0,8}", other in "\\PC{0,8}") {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let text = format!("metadata.name={},spec.nodeName!={}", escaped(&value), escaped(&other));
        let selector = FieldSelector::parse(&text, pods()).unwrap();
        prop_assert_eq!(selector.pinned_name(), Some(&*value));
        prop_assert_eq!(FieldSelector::parse(&selector.to_string(), pods()), Ok(selector));
    }
}
