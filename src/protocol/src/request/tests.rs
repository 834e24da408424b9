//! Requests, checked against responses of a real API server and the tables of docs/PROTOCOL.md.

use http::{Method, Uri};
use proptest::prelude::*;

use super::*;
use crate::continue_token::ContinueToken;
use crate::resource::{Encoding, Gvr, Layout, ResourceVersion};
use crate::status::StatusForm;
use crate::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};

const fn at(version: u64) -> ResourceVersion {
    ResourceVersion(version)
}

fn target(uri: &str) -> ResourcePath {
    match RequestTarget::parse(&uri.parse::<Uri>().unwrap()) {
        RequestTarget::Resource(path) => path,
        RequestTarget::NonResource => panic!("{uri}"),
    }
}

fn options(query: &str) -> ListOptions {
    ListOptions::from_query(&Query::parse(Some(query))).unwrap()
}

fn pods() -> ResourceKind {
    ResourceKind {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".into(),
        list_kind: "PodList".into(),
        namespaced: true,
        layout: Layout::Typed,
        encoding: Encoding::Json,
        warnings: Vec::new(),
    }
}

/// Resource, namespace, name, subresource, form and spelling in one line.
#[track_caller]
fn path_is(uri: &str, expected: &str) {
    let path = target(uri);
    let shown = |part: &Option<String>| part.as_deref().unwrap_or("-").to_owned();
    let [namespace, name, sub] = [&path.namespace, &path.name, &path.subresource].map(shown);
    let (form, spelling) = (path.form, path.spelling);
    let actual = format!(
        "{} {namespace} {name} {sub} {form:?} {spelling:?}",
        path.gvr
    );
    assert_eq!(actual, expected, "{uri}");
}

#[test]
fn paths_are_taken_apart_as_request_info_does() {
    for (uri, expected) in [
        ("/api/v1/pods", "pods.v1 - - - Plain Clean"),
        ("/api/v1/pods/p", "pods.v1 - p - Plain Clean"),
        ("/api/v1/namespaces/ns/pods", "pods.v1 ns - - Plain Clean"),
        (
            "/apis/a/v1/namespaces/ns/ds/d/scale",
            "ds.v1.a ns d scale Plain Clean",
        ),
        ("/api/v1/namespaces", "namespaces.v1 - - - Plain Clean"),
        (
            "/api/v1/namespaces/foo",
            "namespaces.v1 foo foo - Plain Clean",
        ),
        (
            "/api/v1/namespaces/foo/status",
            "namespaces.v1 foo foo status Plain Clean",
        ),
        (
            "/api/v1/namespaces/foo/finalize",
            "namespaces.v1 foo foo finalize Plain Clean",
        ),
        (
            "/api/v1/watch/namespaces/ns/pods/p",
            "pods.v1 ns p - WatchPrefix Clean",
        ),
        (
            "/api/v1/watch/namespaces/foo",
            "namespaces.v1 foo foo - WatchPrefix Clean",
        ),
        ("/api/v1/proxy/pods/p/x", "pods.v1 - p - ProxyPrefix Clean"),
        ("/api/v1/namespaces//pods", "pods.v1 - - - Plain Odd"),
        ("/api/v1/pods/", "pods.v1 - - - Plain Odd"),
        ("//api/v1/pods", "pods.v1 - - - Plain Odd"),
        ("/api/v1/p%6fds", "pods.v1 - - - Plain Odd"),
        ("/api/v1/pods/x/y/z/w", "pods.v1 - x y Plain Odd"),
        (
            "/api/v1/namespaces/x/namespaces/x",
            "namespaces.v1 x x - Plain Odd",
        ),
        (
            "/api/v1/watch/namespaces/x/namespaces/x",
            "namespaces.v1 x x - WatchPrefix Odd",
        ),
    ] {
        path_is(uri, expected);
    }
}

#[test]
fn other_paths_are_no_resources() {
    for uri in [
        "/",
        "/api",
        "/api/v1",
        "/apis/apps/v1",
        "/version",
        "/healthz/x/y",
        "/api/v1/%zz",
        "/api/v1/watch",
        "/api/v1/proxy?x=1",
        "/apis/apps/v1/watch/",
    ] {
        let target = RequestTarget::parse(&uri.parse().unwrap());
        assert_eq!(target, RequestTarget::NonResource, "{uri}");
    }
}

#[test]
fn verbs_follow_method_name_and_watch() {
    for (method, uri, expected) in [
        (Method::GET, "/api/v1/pods", Verb::List),
        (Method::HEAD, "/api/v1/pods", Verb::List),
        (Method::GET, "/api/v1/pods?watch", Verb::Watch),
        (Method::GET, "/api/v1/pods?watch=no", Verb::Watch),
        (Method::GET, "/api/v1/pods?watch=FALSE", Verb::List),
        (Method::GET, "/api/v1/pods?watch=0&watch=1", Verb::List),
        (Method::GET, "/api/v1/pods?watch=1&limit=x", Verb::Watch),
        (Method::GET, "/api/v1/pods/p?watch=1", Verb::Get),
        (Method::GET, "/api/v1/watch/pods?watch=0", Verb::Watch),
        (Method::GET, "/api/v1/proxy/pods/p", Verb::Other),
        (Method::POST, "/api/v1/pods", Verb::Create),
        (Method::PUT, "/api/v1/pods/p", Verb::Update),
        (Method::PATCH, "/api/v1/pods/p", Verb::Patch),
        (Method::DELETE, "/api/v1/pods/p", Verb::Delete),
        (Method::DELETE, "/api/v1/pods", Verb::DeleteCollection),
        (Method::OPTIONS, "/api/v1/pods", Verb::Other),
    ] {
        let query = Query::parse(uri.split_once('?').map(|(_, query)| query));
        assert_eq!(verb(&method, &target(uri), &query), expected, "{uri}");
    }
}

#[test]
fn a_pinned_name_is_the_name_that_is_authorized() {
    for (uri, verb, expected) in [
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Da",
            Verb::List,
            Some("a"),
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name!%3Da",
            Verb::List,
            None,
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Da/b",
            Verb::List,
            None,
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3D..",
            Verb::List,
            None,
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Da&limit=x",
            Verb::List,
            None,
        ),
        (
            "/api/v1/watch/pods?fieldSelector=metadata.name%3Da",
            Verb::Watch,
            None,
        ),
        ("/api/v1/pods/p", Verb::Get, Some("p")),
    ] {
        let query = Query::parse(uri.split_once('?').map(|(_, query)| query));
        let name = authorized_name(&target(uri), verb, &query);
        assert_eq!(name.as_deref(), expected, "{uri}");
    }
}

#[test]
fn queries_decode_as_go_decodes_them() {
    let query = Query::parse(Some("a=1+2&a=3&%62=%2B&c&d=%zz&e=1;2&&=x&f=%ff&g=a=b"));
    for (name, value) in [
        ("a", Some("1 2")),
        ("b", Some("+")),
        ("c", Some("")),
        ("d", None),
        ("e", None),
        ("", Some("x")),
        ("f", Some("\u{fffd}")),
        ("g", Some("a=b")),
    ] {
        assert_eq!(query.first(name), value, "{name}");
    }
}

#[test]
fn options_are_read_by_their_wire_names() {
    let all = options(
        "labelSelector=a%3Db&fieldSelector=c%3Dd&watch=true&allowWatchBookmarks=1&sendInitialEvents=&resourceVersion=7\
         &resourceVersionMatch=NotOlderThan&limit=%2B5&continue=t&timeoutSeconds=-3&shardSelector=s&unknown=1",
    );
    let expected = ListOptions {
        label_selector: "a=b".into(),
        field_selector: "c=d".into(),
        watch: true,
        allow_watch_bookmarks: true,
        send_initial_events: Some(true),
        resource_version: "7".into(),
        resource_version_match: "NotOlderThan".into(),
        limit: 5,
        continue_token: "t".into(),
        timeout_seconds: Some(-3),
        shard_selector: "s".into(),
    };
    assert_eq!(all, expected);
    assert_eq!(
        options("sendInitialEvents=False").send_initial_events,
        Some(false)
    );
    assert_eq!(options(""), ListOptions::default());
}

#[test]
fn numbers_that_are_none_are_upstreams() {
    for query in [
        "limit=abc",
        "limit=",
        "limit=+5",
        "timeoutSeconds=x",
        "limit=99999999999999999999",
        "limit=%00",
    ] {
        let options = ListOptions::from_query(&Query::parse(Some(query)));
        assert_eq!(options, None, "{query}");
    }
}

#[test]
fn some_options_do_not_go_together() {
    let token = ContinueToken::after("p", at(14)).encode();
    for (query, is_allowed) in [
        ("", true),
        ("resourceVersion=5&resourceVersionMatch=Exact&limit=3", true),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", true),
        (&format!("continue={token}"), true),
        ("resourceVersionMatch=Exact", false),
        ("resourceVersionMatch=NotOlderThan", false),
        ("resourceVersion=0&resourceVersionMatch=Exact", false),
        ("resourceVersion=5&resourceVersionMatch=exact", false),
        (
            &format!("resourceVersion=0&resourceVersionMatch=NotOlderThan&continue={token}"),
            false,
        ),
        ("sendInitialEvents=0", false),
        (
            "sendInitialEvents=true&resourceVersion=5&resourceVersionMatch=NotOlderThan",
            false,
        ),
    ] {
        let options = options(query);
        assert_eq!(options.is_allowed(), is_allowed, "{query}");
        assert_eq!(ListPlan::decide(&options).is_some(), is_allowed, "{query}");
    }
    for (query, is_allowed) in [
        ("watch=1", true),
        (
            "watch=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan",
            true,
        ),
        ("watch=1&resourceVersion=5&continue=x", true),
        ("watch=1&continue=x", false),
        ("watch=1&resourceVersion=0&continue=x", false),
        ("watch=1&sendInitialEvents=true", false),
        ("watch=1&resourceVersion=5&sendInitialEvents=true", false),
        (
            "watch=1&sendInitialEvents=1&resourceVersionMatch=Exact",
            false,
        ),
        ("watch=1&resourceVersionMatch=NotOlderThan", false),
        (
            "watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x",
            false,
        ),
    ] {
        let options = options(query);
        assert_eq!(options.is_allowed(), is_allowed, "{query}");
        assert_eq!(WatchPlan::decide(&options).is_some(), is_allowed, "{query}");
    }
}

#[test]
fn lists_are_read_from_the_state_they_ask_for() {
    let exact = ContinueToken::after("ns/p", at(14));
    let with = |rest: &str, token: &ContinueToken| format!("{rest}&continue={}", token.encode());
    let start = Some("ns/p\0".to_owned());
    for (query, read, limit, start) in [
        ("", ListRead::Latest, None, None),
        ("limit=5", ListRead::Latest, Some(5), None),
        ("limit=-5", ListRead::Latest, None, None),
        ("resourceVersion=0&limit=5", ListRead::Cached, None, None),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5",
            ListRead::Cached,
            None,
            None,
        ),
        ("resourceVersion=007", ListRead::AtLeast(at(7)), None, None),
        (
            "resourceVersion=7&limit=5",
            ListRead::Exact(at(7)),
            Some(5),
            None,
        ),
        (
            "resourceVersion=00&limit=5",
            ListRead::AtLeast(at(0)),
            Some(5),
            None,
        ),
        (
            "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan",
            ListRead::AtLeast(at(7)),
            Some(5),
            None,
        ),
        (
            "resourceVersion=7&resourceVersionMatch=Exact",
            ListRead::Exact(at(7)),
            None,
            None,
        ),
        (
            &with("limit=5", &exact),
            ListRead::Exact(at(14)),
            Some(5),
            start.clone(),
        ),
        (
            &with("limit=5&resourceVersion=0", &exact),
            ListRead::Exact(at(14)),
            None,
            start.clone(),
        ),
        (
            &with("limit=5", &exact.at_latest()),
            ListRead::Latest,
            Some(5),
            start,
        ),
    ] {
        let plan = ListPlan { read, limit, start };
        assert_eq!(ListPlan::decide(&options(query)), Some(plan), "{query}");
    }
}

#[test]
fn versions_and_tokens_that_are_none_are_upstreams() {
    let token = ContinueToken::after("p", at(14)).encode();
    for query in [
        "resourceVersion=abc",
        "resourceVersion=-1",
        "resourceVersion=99999999999999999999",
        "resourceVersion=%00",
        "resourceVersion=abc&resourceVersionMatch=Exact",
    ] {
        assert_eq!(ListPlan::decide(&options(query)), None, "{query}");
        let watch = options(&format!("watch=1&{query}"));
        assert_eq!(WatchPlan::decide(&watch), None, "{query}");
    }
    for query in [
        format!("resourceVersion=abc&continue={token}"),
        format!("resourceVersion=5&continue={token}"),
        "continue=abc".to_owned(),
    ] {
        assert_eq!(ListPlan::decide(&options(&query)), None, "{query}");
    }
}

#[test]
fn watches_start_where_the_table_says() {
    use EndMarker::{Omitted, Sent};
    use Freshness::{Any, AtLeast, Latest};
    let initial = |freshness, marker| WatchStart::Initial { freshness, marker };
    let from_now = |freshness| WatchStart::FromNow { freshness };
    let list = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents";
    for (query, start) in [
        ("watch=1", initial(Latest, Omitted)),
        ("watch=1&allowWatchBookmarks=1", initial(Latest, Sent)),
        ("watch=1&resourceVersion=0", initial(Any, Omitted)),
        ("watch=1&resourceVersion=00", initial(Any, Omitted)),
        (
            "watch=1&resourceVersion=7&continue=x&limit=1",
            WatchStart::After(at(7)),
        ),
        (
            &format!("{list}=1&allowWatchBookmarks=1"),
            initial(Latest, Sent),
        ),
        (
            &format!("{list}=1&resourceVersion=0"),
            initial(Any, Omitted),
        ),
        (
            &format!("{list}=1&resourceVersion=7&allowWatchBookmarks=1"),
            initial(AtLeast(at(7)), Sent),
        ),
        (&format!("{list}=0"), from_now(Latest)),
        (&format!("{list}=0&resourceVersion=0"), from_now(Any)),
        (
            &format!("{list}=0&resourceVersion=7"),
            WatchStart::After(at(7)),
        ),
        // Without the watch option, as for the `/watch/` prefix.
        ("allowWatchBookmarks=1", initial(Any, Omitted)),
        ("resourceVersion=0", initial(Any, Omitted)),
        ("resourceVersion=7", WatchStart::After(at(7))),
    ] {
        let plan = WatchPlan::decide(&options(query)).unwrap();
        assert_eq!(plan.start, start, "{query}");
        let expected = query.contains("allowWatchBookmarks");
        assert_eq!(plan.bookmarks == Bookmarks::On, expected, "{query}");
    }
}

#[test]
fn watches_end_when_they_were_told_to() {
    for (seconds, timeout) in [
        ("0", WatchTimeout::Default),
        ("20", WatchTimeout::Seconds(20)),
        ("-1", WatchTimeout::Ended),
        ("9300000000", WatchTimeout::Ended),
    ] {
        let query = format!("watch=1&timeoutSeconds={seconds}");
        let plan = WatchPlan::decide(&options(&query)).unwrap();
        assert_eq!(plan.timeout, timeout, "{seconds}");
    }
    let plan = WatchPlan::decide(&options("watch=1")).unwrap();
    assert_eq!(plan.timeout, WatchTimeout::Default);
}

#[track_caller]
fn decided(uri: &str, kind: &ResourceKind) -> Option<CacheRead> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    CacheRead::decide(&target(uri), &options(query), kind)
}

#[test]
fn requests_that_are_not_certainly_valid_are_upstreams() {
    for uri in [
        "/api/v1/pods?labelSelector===",
        "/api/v1/pods?fieldSelector=a",
        "/api/v1/pods?fieldSelector=nope%3D1",
        "/api/v1/pods?shardSelector=x",
        "/api/v1/pods?resourceVersionMatch=X",
        "/api/v1/pods?resourceVersion=x",
        "/api/v1/pods?watch=1&resourceVersion=x",
        "/api/v1/pods?continue=x",
        "/api/v1/watch/namespaces/ns/pods/p?fieldSelector=metadata.namespace%3Dq",
        "/api/v1/watch/namespaces/ns/pods/p?fieldSelector=metadata.name%3Dq",
        "/api/v1/pods/",
        "/api/v1/pods/p",
        "/api/v1/watch/pods/p",
        "/api/v1/proxy/pods/p",
    ] {
        assert_eq!(decided(uri, &pods()), None, "{uri}");
    }
    assert!(decided("/api/v1/pods", &pods()).is_some());
}

#[test]
fn selectors_that_cost_too_much_are_upstreams() {
    let listed = |count: usize, term: &dyn Fn(usize) -> String| {
        Vec::from_iter((0..count).map(term)).join(",")
    };
    let absent = |count| listed(count, &|index| format!("!k{index}"));
    let not_named = |count| listed(count, &|index| format!("metadata.name!%3Dn{index}"));
    let one_of = |count| listed(count, &|index| format!("v{index}"));
    for (query, is_read) in [
        (format!("labelSelector={}", absent(64)), true),
        (format!("labelSelector={}", absent(65)), false),
        (format!("labelSelector={},!k0", absent(64)), true),
        (format!("fieldSelector={}", not_named(65)), false),
        (
            format!(
                "labelSelector={}&fieldSelector={}",
                absent(60),
                not_named(5)
            ),
            false,
        ),
        (format!("labelSelector=k in ({})", one_of(2_000)), true),
        (format!("labelSelector=k in ({})", one_of(3_000)), false),
        (format!("labelSelector=={}", one_of(3_000)), false),
    ] {
        for verb in ["", "watch=1&"] {
            let query = query.replace(' ', "+");
            let decided = CacheRead::decide(
                &target("/api/v1/pods"),
                &options(&format!("{verb}{query}")),
                &pods(),
            );
            assert_eq!(decided.is_some(), is_read, "{query:.60}");
        }
    }
}

#[test]
fn a_namespace_among_the_fields_narrows_a_first_page() {
    let scope = |query: &str| {
        let read = decided(&format!("/api/v1/pods?{query}"), &pods()).unwrap();
        read.selector.namespace
    };
    let token = ContinueToken::after("a/p", at(5)).encode();
    for (query, expected) in [
        ("fieldSelector=metadata.namespace%3Da-b", Some("a-b")),
        (
            "fieldSelector=metadata.namespace%3Da,metadata.name%3Dp",
            Some("a"),
        ),
        ("fieldSelector=metadata.namespace!%3Da", None),
        ("fieldSelector=metadata.namespace%3D", None),
        ("fieldSelector=metadata.namespace%3DA", None),
        ("fieldSelector=metadata.namespace%3Da/b", None),
    ] {
        assert_eq!(scope(query).as_deref(), expected, "{query}");
        assert_eq!(scope(&format!("{query}&continue={token}")), None, "{query}");
    }
    let inside = "/api/v1/namespaces/ns/pods?fieldSelector=metadata.namespace%3Da";
    let read = decided(inside, &pods()).unwrap();
    assert_eq!(read.selector.namespace.as_deref(), Some("ns"));
}

#[test]
fn a_read_knows_its_scope_and_single_keys_are_not_exact() {
    let read = decided(
        "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Da&resourceVersion=5&limit=2",
        &pods(),
    )
    .unwrap();
    assert_eq!(read.selector.namespace.as_deref(), Some("ns"));
    let ReadPlan::List(plan) = read.plan else {
        panic!("the plan must be a list")
    };
    assert_eq!(plan.read, ListRead::AtLeastNow(at(5)));

    let read = decided("/api/v1/watch/namespaces/ns/pods/p", &pods()).unwrap();
    assert_eq!(read.selector.fields.pinned_name(), Some("p"));
    assert!(matches!(read.plan, ReadPlan::Watch(_)));

    let mut namespaces = pods();
    namespaces.gvr = Gvr::new("", "v1", "namespaces");
    namespaces.namespaced = false;
    let read = decided("/api/v1/watch/namespaces/foo", &namespaces).unwrap();
    assert_eq!(read.selector.namespace, None);
    assert_eq!(read.selector.fields.pinned_name(), Some("foo"));
    let refused = decided(
        "/api/v1/namespaces?fieldSelector=metadata.namespace%3Da",
        &namespaces,
    );
    assert_eq!(refused, None);
}

#[track_caller]
fn negotiated(accept: &str, typed: Representation, dynamic: Representation) {
    let of = |layout| Accept::parse([accept]).negotiate(layout, AcceptPurpose::List);
    assert_eq!(of(Layout::Typed), typed, "built-in, {accept:?}");
    assert_eq!(of(Layout::Dynamic), dynamic, "custom, {accept:?}");
}

fn cached(encoding: Encoding, form: ObjectPart) -> Representation {
    Representation::Cached(ObjectFormat {
        encoding,
        form,
        ..ObjectFormat::default()
    })
}

#[test]
fn media_types_are_chosen_as_the_server_chooses() {
    use Representation::Forward;
    let metadata = |version| cached(Encoding::Json, ObjectPart::Metadata(version));
    let json = Representation::JSON;
    let indented = Representation::Indented(ObjectFormat::default());
    for (accept, typed, dynamic) in [
        ("", json, json),
        ("*/*", json, json),
        ("*", Forward, json),
        ("application/*", Forward, json),
        ("application/*,application/json", json, json),
        ("application/json", json, json),
        ("application/json ;q=0.5", json, json),
        ("APPLICATION/JSON", Forward, Forward),
        ("application/json/", Forward, json),
        ("application/json/x,application/json", json, json),
        ("text/html,application/xhtml+xml,*/*;q=0.8", json, json),
        ("application/json;q=0", json, json),
        ("application/yaml,application/json", Forward, Forward),
        (
            "application/yaml;q=0.1,application/json;q=0.9,application/vnd.kubernetes.protobuf;q=0.5",
            json,
            json,
        ),
        (
            "application/json;q=0.1,application/yaml;q=0.2,*/*;q=1",
            json,
            json,
        ),
        (
            "application/yaml;q=1;q=0.1,application/json;q=0.5",
            json,
            json,
        ),
        (
            "application/json;q=abc,application/yaml;q=0.9",
            Forward,
            Forward,
        ),
        (
            "application/json;q= 0.5,application/yaml;q=0.1",
            Forward,
            Forward,
        ),
        ("application/json;Q=0.1,application/yaml", json, json),
        ("application/json;sv=v1", json, json),
        ("application/json;sv=v2,application/json", json, json),
        ("application/json;stream=foo", Forward, Forward),
        ("application/json;stream=watch", json, json),
        ("application/json; charset=utf-8", json, json),
        ("application/json;as=", json, json),
        ("application/json;as==", Forward, Forward),
        ("application/json;v=v1", Forward, Forward),
        (
            "application/json;as=Foo;g=meta.k8s.io;v=v1, application/json",
            json,
            json,
        ),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Forward,
            Forward,
        ),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            metadata(MetaVersion::V1),
            metadata(MetaVersion::V1),
        ),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v2,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
            metadata(MetaVersion::V1Beta1),
            metadata(MetaVersion::V1Beta1),
        ),
        (
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Forward,
            Forward,
        ),
        ("application/json;pretty=1", indented, indented),
        ("application/json;pretty=1;pretty=0", json, json),
        ("*/json,application/json", json, json),
        (",", Forward, Forward),
        ("json", Forward, Forward),
        ("text/csv", Forward, Forward),
    ] {
        negotiated(accept, typed, dynamic);
    }
    let pretty = ["application/json;pretty=1"];
    assert_eq!(
        Accept::parse(pretty).negotiate(Layout::Typed, AcceptPurpose::Watch),
        json
    );
    let cut = ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"];
    assert_eq!(
        Accept::parse(cut).negotiate(Layout::Typed, AcceptPurpose::Watch),
        metadata(MetaVersion::V1)
    );
    let two = ["application/yaml", "application/json"];
    let of = |accept: Accept| accept.negotiate(Layout::Typed, AcceptPurpose::List);
    assert_eq!(of(Accept::parse(two)), Forward);
    assert_eq!(of(Accept::parse([])), json);
}

#[test]
fn renditions_are_chosen_as_the_server_chooses() {
    let json = Representation::JSON;
    let metadata = cached(Encoding::Protobuf, ObjectPart::Metadata(MetaVersion::V1));
    let protobuf = cached(Encoding::Protobuf, ObjectPart::Whole);
    let dropped = Representation::Cached(ObjectFormat {
        managed_fields: ManagedFields::Dropped,
        ..ObjectFormat::default()
    });
    for (accept, typed, dynamic) in [
        (
            "application/vnd.kubernetes.protobuf,application/json",
            protobuf,
            json,
        ),
        (
            "*/*;q=1, application/vnd.kubernetes.protobuf;q=0.1",
            protobuf,
            json,
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            metadata,
            metadata,
        ),
        (
            "application/json;drop=metadata.managedFields",
            dropped,
            dropped,
        ),
        ("application/json;drop=spec", json, json),
        ("application/json;drop=", json, json),
        (
            "application/json; drop=spec.later+metadata.managedFields",
            dropped,
            dropped,
        ),
        (
            "application/json;drop=metadata.managedFields+metadata.managedFields",
            dropped,
            dropped,
        ),
        (
            "application/json;drop=metadata.managedFields;drop=spec",
            json,
            json,
        ),
    ] {
        negotiated(accept, typed, dynamic);
    }
}

#[test]
fn people_get_indented_answers() {
    for (query, agent, expected) in [
        ("", Some("curl/8"), true),
        ("", Some("Mozilla/5.0 (X11)"), true),
        ("", Some("kubectl/v1"), false),
        ("", None, false),
        ("pretty=", Some("Wget/1"), true),
        ("pretty=false", Some("curl/8"), false),
        ("pretty=x", Some("curl/8"), false),
        ("pretty=tRue", Some("curl/8"), false),
        ("pretty=t", None, true),
        ("pretty=TRUE", None, true),
    ] {
        let query = Query::parse(Some(query));
        assert_eq!(wants_pretty(&query, agent), expected, "{query:?} {agent:?}");
    }
}

#[test]
fn a_head_is_read_as_its_parts_are() {
    let info = |method: Method, uri: &str, headers: &[(&'static str, &'static str)]| {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        RequestInfo::of(&request.body(()).unwrap())
    };
    let watch = info(
        Method::GET,
        "/api/v1/namespaces/ns/pods?watch=1&fieldSelector=metadata.name%3Dp&limit=x",
        &[("user-agent", "curl/8")],
    );
    let path = watch.resource().unwrap();
    assert_eq!(
        (path, watch.verb),
        (&target("/api/v1/namespaces/ns/pods"), Verb::Watch)
    );
    assert_eq!(watch.query.first("limit"), Some("x"));
    assert_eq!(watch.authorized_name(), "", "the options do not parse");
    assert_eq!(watch.refusal_form(), Some(StatusForm::Indented));

    let accept = ("accept", "application/vnd.kubernetes.protobuf");
    let other = ("accept", "application/json");
    let get = info(
        Method::GET,
        "/api/v1/namespaces/ns/pods/p?watch=1",
        &[accept, other],
    );
    assert_eq!((get.verb, &*get.authorized_name()), (Verb::Get, "p"));
    assert_eq!(get.refusal_form(), Some(StatusForm::Protobuf));

    let version = info(Method::GET, "/version?watch=1&pretty=1", &[]);
    assert_eq!(version.target, RequestTarget::NonResource);
    assert_eq!((version.resource(), version.verb), (None, Verb::Other));
    assert_eq!(version.refusal_form(), Some(StatusForm::Indented));

    let cut = info(Method::GET, "/api/v1/watch?watch=1", &[]);
    assert_eq!(cut.target, RequestTarget::NonResource);
    assert_eq!((cut.resource(), cut.verb), (None, Verb::Other));
}

#[test]
fn a_watch_resumes_from_a_version_unless_it_asks_for_a_state() {
    let rows = [
        ("/api/v1/pods?watch=1&resourceVersion=7", true),
        ("/api/v1/watch/pods?resourceVersion=7", true),
        (
            "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            true,
        ),
        (
            "/api/v1/pods?watch=1&resourceVersion=7&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            false,
        ),
        ("/api/v1/pods?watch=1", false),
        ("/api/v1/pods?watch=1&resourceVersion=", false),
        ("/api/v1/pods?watch=1&resourceVersion=0", false),
        ("/api/v1/pods?watch=1&resourceVersion=x", false),
        ("/api/v1/pods?watch=0&resourceVersion=7", false),
        ("/api/v1/pods/p?watch=1&resourceVersion=7", false),
    ];
    for (uri, expected) in rows {
        let info = RequestInfo::of(&http::Request::get(uri).body(()).unwrap());
        assert_eq!(info.resumes_watch(), expected, "{uri}");
    }
}

#[test]
fn cbor_is_noticed_in_every_accept_header() {
    for (values, expected) in [
        (&["application/cbor"][..], true),
        (&["application/json", "application/cbor;q=0.1"], true),
        (&["application/json"], false),
        (&[], false),
    ] {
        let accept = Accept::parse(values.iter().copied());
        assert_eq!(accept.names_cbor(), expected, "{values:?}");
    }
}

proptest! {
    #[test]
    fn no_request_makes_it_panic(path in "(/(api|apis|watch|proxy|namespaces|v1|[a-z%/]{0,4})){0,9}", query in "([a-zA-Z]{1,3}|watch|limit|continue|labelSelector|fieldSelector|resourceVersion)?=?[ -~]{0,12}(&[ -~]{0,20})?", accept in "[ -~]{0,40}") {
        let _ = Accept::parse([&*accept]).negotiate(Layout::Dynamic, AcceptPurpose::List);
        let parameters = Query::parse(Some(&query));
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        if let RequestTarget::Resource(path) = RequestTarget::parse(&uri) {
            let verb = verb(&Method::GET, &path, &parameters);
            let _ = authorized_name(&path, verb, &parameters);
            if let Some(options) = ListOptions::from_query(&parameters) {
                let _ = CacheRead::decide(&path, &options, &pods());
            }
        }
    }
}
