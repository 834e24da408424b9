//! Selectors compared with what an API server accepts and selects, and round trips through the canonical form.

use proptest::prelude::*;

use super::samples::{object, pods};
use super::*;

#[test]
fn doubtful_label_selectors_are_forwarded() {
    for text in [
        "===",
        ",a",
        "=a",
        "a=b=c",
        "!a=b",
        "a=b)",
        "a in (b))",
        "a>5,",
        "a,,b",
        "a,=",
        "!",
        "a b",
        "a\tb",
        "a!b",
        "a in",
        "a notin",
        "a in b",
        "a in (",
        "a in (()",
        "a notin (=)",
        "a in (b",
        "a in (b c)",
        "a in (b,",
        "a in (b,!)",
        "a in (b,,)",
        "a in (,,)",
        "a in (b,,,,)",
        "a in (,,",
        "a in (b,,(",
        "a=(b)",
        "a/b/c",
        "/a=b",
        "a/=b",
        "A..b/c=d",
        "-a/-b",
        "é=b",
        "a>gt",
        "a>",
        "a>99999999999999999999",
        "a>-5",
        "a=-x",
        "a in (-x,-y)",
        // The API server accepts these.
        "a in (c,,b)",
        "a in (,,,)",
        "a=b\0",
        "\0junk(",
    ] {
        assert_eq!(LabelSelector::parse(text), None, "{text:?}");
    }
}

#[test]
fn labels_have_a_length_limit() {
    let prefix = |len: usize| "p".repeat(len);
    for (key, value, is_valid) in [
        ("n".repeat(63), "v".repeat(63), true),
        (format!("{}/n", prefix(253)), "v".to_owned(), true),
        ("a-b.c/n".to_owned(), "v".to_owned(), true),
        ("n".repeat(64), "v".to_owned(), false),
        (format!("{}/n", prefix(254)), "v".to_owned(), false),
        ("a".to_owned(), "v".repeat(64), false),
    ] {
        let selector = LabelSelector::parse(&format!("{key}={value}"));
        assert_eq!(selector.is_some(), is_valid, "{key}={value}");
    }
}

#[test]
fn labels_match_as_upstream_matches_them() {
    let labelled = object(&[("app", "web"), ("n", "7"), ("empty", "")]);
    for (text, expected) in [
        ("", true),
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
        ("a in (,c,b,c)", "a in (,b,c)"),
        ("a in ()", "a="),
        ("a in (,)", "a="),
        ("a in (b,)", "a in (,b)"),
        ("a in (,b)", "a in (,b)"),
        ("a in (,b,)", "a in (,b)"),
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
fn terms_that_need_a_label_make_it_required() {
    let selector = LabelSelector::parse("a=1,b in (2),c in (3,4),d!=5,e,!f,g>6,h=").unwrap();
    let required = selector.required().map(|(key, values)| {
        let values = values.map(|values| Vec::from_iter(values.iter()).join("|"));
        format!("{key}:{}", values.unwrap_or_default())
    });
    let required: Vec<_> = required.collect();
    assert_eq!(required, ["a:1", "b:2", "c:3|4", "e:", "g:", "h:"]);
}

#[test]
fn doubtful_field_selectors_are_forwarded() {
    for text in [
        "metadata.name",
        "metadata.name=x,metadata.namespace",
        "=,b",
        "metadata.name=b=c",
        "metadata.name==a=b",
        "metadata.name=a\\z",
        "metadata.name=a\\",
        "spec.nope=1",
        "a!b=c",
        "=x",
    ] {
        assert_eq!(FieldSelector::parse(text, pods()), None, "{text:?}");
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

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC*|[ab/=!<>(), \\\\.0-9\0-]{0,24}") {
        if let Some(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Some(selector));
        }
        let text = text.replace('a', "metadata.name").replace('b', "spec.nodeName");
        if let Some(selector) = FieldSelector::parse(&text, pods()) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string(), pods()), Some(selector));
        }
    }

    #[test]
    fn canonical_labels_parse_to_themselves(terms in proptest::collection::vec(
        "!?[a-c]|[a-c](=|==|!=)[a-c]?|[a-c] (in|notin) \\([a-c]?(,[a-c]){0,3},?\\)|[a-c][<>][0-9]{1,3}", 0..5)) {
        let selector = LabelSelector::parse(&terms.join(",")).unwrap();
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Some(selector));
    }

    #[test]
    fn canonical_fields_parse_to_themselves(value in "\\PC{0,8}", other in "\\PC{0,8}") {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let text = format!("metadata.name={},spec.nodeName!={}", escaped(&value), escaped(&other));
        let selector = FieldSelector::parse(&text, pods()).unwrap();
        prop_assert_eq!(selector.pinned_name(), Some(&*value));
        prop_assert_eq!(FieldSelector::parse(&selector.to_string(), pods()), Some(selector));
    }
}
