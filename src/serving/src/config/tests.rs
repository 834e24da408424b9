//! Tests that flags, variables and files become settings, or an error of one line.

use std::ffi::OsString;
use std::fs;

use super::*;
use crate::cli;
use crate::resource::Gvr;

/// The settings of a command line, variables and an optional file, or the error of one line. `{file}` in the command line stands for the
/// file's path.
fn settings(
    line: &str,
    variables: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Settings, String> {
    let path = std::env::temp_dir().join(format!(
        "kube-fanout-config-{}-{:?}.yaml",
        std::process::id(),
        std::thread::current().id()
    ));
    if let Some(text) = file {
        fs::write(&path, text).unwrap();
    }
    let line = format!("kube-fanout {line}").replace("{file}", path.to_str().unwrap());
    let arguments = line.split_whitespace().map(OsString::from).collect();
    let variable = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let resolved = read(arguments, variable)
        .map_err(|error| error.one_line().unwrap_or_default())
        .and_then(|flags| Settings::resolve(flags).map_err(|error| error.to_string()));
    let _ = fs::remove_file(&path);
    resolved.map_err(|text| text.replace(path.to_str().unwrap(), "FILE"))
}

fn serve(
    line: &str,
    variables: &[(&str, &str)],
    file: Option<&str>,
) -> Result<ServeSettings, String> {
    let task = settings(&format!("serve {line}"), variables, file)?.task;
    let ProcessTask::Serve(serve) = task else {
        panic!("{task:?}");
    };
    Ok(serve)
}

#[track_caller]
fn refused(line: &str, message: &str) {
    match settings(line, &[], None) {
        Ok(settings) => panic!("accepted: {settings:?}"),
        Err(error) => {
            assert!(error.contains(message), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}

const PLAIN: &str = "--upstream http://127.0.0.1:8001 --plain-http --auth none";
const HEAD: &str = "apiVersion: kube-fanout.dev/v1alpha1\nkind: GatewayConfiguration\n";

#[test]
fn unsafe_choices_stay_on_loopback_unless_asked_for() {
    let open = "--upstream http://127.0.0.1:8001 --listen 0.0.0.0:8443 --auth none";
    refused(
        &format!("serve {open} --plain-http"),
        "--plain-http is refused on 0.0.0.0:8443",
    );
    refused(
        &format!("serve {open} --tls-cert c --tls-key k"),
        "--auth none is refused on 0.0.0.0:8443",
    );
    let knowing = format!("{open} --plain-http --i-know-this-is-insecure");
    assert_eq!(
        serve(&knowing, &[], None).unwrap().transport,
        ListenTransport::PlainHttp
    );
    refused("apiserver --listen 0.0.0.0:8001", "loopback addresses only");
}

#[test]
fn the_operators_address_is_as_public_as_the_other_one() {
    let open = "--upstream http://127.0.0.1:8001 --operator-listen 0.0.0.0:8444";
    refused(
        &format!("serve {open} --plain-http"),
        "--plain-http is refused on 0.0.0.0:8444",
    );
    refused(
        &format!("serve {open} --auth none --tls-cert c --tls-key k"),
        "--auth none is refused on 0.0.0.0:8444",
    );
    let checked = serve(&format!("{open} --tls-cert c --tls-key k"), &[], None).unwrap();
    assert_eq!(checked.auth.mode, AuthMode::SelfCheck);
}

#[test]
fn what_nothing_would_look_at_is_refused() {
    let tls = "serve --upstream http://127.0.0.1:8001 --tls-cert c --tls-key k";
    let plain = "serve --upstream http://127.0.0.1:8001 --plain-http";
    for (line, flags, message) in [
        (
            plain,
            "--client-ca-file ca",
            "--client-ca-file needs --tls-cert",
        ),
        (
            plain,
            "--requestheader-client-ca-file ca",
            "--requestheader-client-ca-file needs --tls-cert",
        ),
        (
            plain,
            "--tls-sni-cert-key c,k",
            "--tls-sni-cert-key needs --tls-cert",
        ),
        (
            tls,
            "--auth none --client-ca-file ca",
            "--client-ca-file needs another --auth",
        ),
        (
            tls,
            "--auth none --exempt-groups system:masters",
            "--exempt-groups needs another --auth",
        ),
        (
            tls,
            "--auth self-check --token-audiences a",
            "--token-audiences needs --auth review or rbac",
        ),
        (
            tls,
            "--requestheader-allowed-names proxy",
            "--requestheader-allowed-names needs --requestheader-client-ca-file",
        ),
        (
            tls,
            "--requestheader-client-ca-file ca --requestheader-username-headers=",
            "--requestheader-client-ca-file needs at least one",
        ),
        (
            tls,
            "--audit-policy-file p",
            "--audit-policy-file needs --audit-log-path",
        ),
        (
            tls,
            "--audit-log-path -",
            "--audit-log-path needs --audit-policy-file",
        ),
    ] {
        refused(&format!("{line} {flags}"), message);
    }
}

#[test]
fn headers_of_front_proxies_are_known_in_lower_case() {
    let tls = "--upstream http://127.0.0.1:8001 --tls-cert c --tls-key k";
    let line = format!("{tls} --requestheader-client-ca-file ca --requestheader-allowed-names a,b");
    let found = serve(&line, &[], None).unwrap().auth;
    assert!(found.wants_certificates());
    let proxy = found.front_proxy.unwrap();
    assert_eq!(proxy.allowed_names, ["a", "b"]);
    assert_eq!(proxy.username_headers, ["x-remote-user"]);
    assert!(proxy.uid_headers.is_empty());
    assert_eq!(proxy.group_headers, ["x-remote-group"]);
    assert_eq!(proxy.extra_header_prefixes, ["x-remote-extra-"]);
    assert_eq!(serve(tls, &[], None).unwrap().auth.front_proxy, None);
}

#[test]
fn further_certificates_are_told_apart_wherever_they_are_written() {
    let tls = "--upstream http://127.0.0.1:8001 --tls-cert c --tls-key k";
    let sni = |cert: &str, key: &str, names: &[&str]| SniCertificate {
        cert: cert.into(),
        key: key.into(),
        names: names.iter().map(|&name| name.to_owned()).collect(),
    };
    let expected = [
        sni("a.crt", "a.key", &[]),
        sni("b.crt", "b.key", &["b.example.com", "*.b.example.com"]),
    ];
    let (one, two) = ("a.crt,a.key", "b.crt,b.key:B.example.com,*.b.example.com");
    let typed = format!("{tls} --tls-sni-cert-key {one} --tls-sni-cert-key {two}");
    let file = format!("{HEAD}tlsSniCertKey: [\"{one}\", \"{two}\"]\n");
    let variable = format!("{one};{two}");
    for found in [
        serve(&typed, &[], None),
        serve(&format!("{tls} --config {{file}}"), &[], Some(&file)),
        serve(tls, &[("KUBE_FANOUT_TLS_SNI_CERT_KEY", &variable)], None),
    ] {
        match found.unwrap().transport {
            ListenTransport::Tls { sni, .. } => assert_eq!(sni, expected),
            ListenTransport::PlainHttp => panic!("not TLS"),
        }
    }
    for text in ["a", "a,", ",k", "a,b,c", "a,b:", "a,b:-/", "a,b:x,"] {
        refused(
            &format!("serve {tls} --tls-sni-cert-key {text}"),
            "--tls-sni-cert-key",
        );
    }
}

#[test]
fn audit_events_go_to_a_file_or_to_standard_output() {
    let audited = |flags: &str| {
        let line = format!("{PLAIN} --audit-policy-file p {flags}");
        serve(&line, &[], None).unwrap().audit.unwrap().log
    };
    assert_eq!(audited("--audit-log-path -"), AuditOutput::Stdout);
    assert_eq!(audited("--audit-log-path a"), AuditOutput::File("a".into()));
    assert_eq!(serve(PLAIN, &[], None).unwrap().audit, None);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    refused(
        "serve --plain-http",
        "give one of --kubeconfig, --in-cluster and --upstream",
    );
    refused(
        &format!("serve {PLAIN} --in-cluster"),
        "give one of --kubeconfig",
    );
    refused(
        &format!("serve {PLAIN} --context x"),
        "--context needs --kubeconfig",
    );
    refused(
        &format!("serve {PLAIN} --tls-cert c --tls-key k"),
        "give either --tls-cert",
    );
    refused(
        "serve --in-cluster --tls-cert c",
        "give either --tls-cert and --tls-key",
    );
    refused(
        &format!("serve {PLAIN} --admin-listen 127.0.0.1:8443"),
        "are the same port",
    );
    refused(
        &format!("serve {PLAIN} --pin-resources secrets.v1"),
        "never cached",
    );
    refused(
        &format!("serve {PLAIN} --cache-resources nodes --pin-resources pods.v1"),
        "never cached",
    );
    for events in ["events", "events.v1", "events.events.k8s.io"] {
        for command in ["serve", "config check"] {
            refused(
                &format!("{command} {PLAIN} --pin-resources pods,{events}"),
                &format!("--pin-resources {events}: events are never cached"),
            );
        }
    }
    for (flags, message) in [
        (
            "--operator-listen 127.0.0.1:8443",
            "--listen and --operator-listen cannot both listen: 127.0.0.1:8443",
        ),
        (
            "--operator-listen 127.0.0.1:9090",
            "--operator-listen and --admin-listen cannot both listen: 127.0.0.1:9090",
        ),
        (
            "--operator-listen [::1]:7 --admin-listen [::]:7",
            "[::1]:7 and [::]:7 are the same port",
        ),
        (
            "--operator-listen 127.0.0.1:7 --admin-listen 0.0.0.0:7",
            "127.0.0.1:7 and 0.0.0.0:7 are the same port",
        ),
    ] {
        refused(&format!("serve {PLAIN} {flags}"), message);
    }
}

#[test]
fn values_out_of_range_name_their_flag() {
    for (flag, name) in [
        (
            "--lists-max 0",
            "--lists-max must be between 1 and 16777216, not 0",
        ),
        (
            "--memory-max 1MiB",
            "--memory-max must be between 64Mi and 1024Ti, not 1Mi",
        ),
        (
            "--ring-bytes-max 1Ki",
            "--ring-bytes-max must be between 64Ki and 1Ti, not 1Ki",
        ),
        ("--ring-age-min 48h", "--ring-age-min"),
        (
            "--idle-resource-timeout 0s",
            "--idle-resource-timeout must be between 1s and 168h, not 0s",
        ),
        ("--drain-timeout 2h", "--drain-timeout"),
        (
            "--drain-delay 26s",
            "--drain-delay must be between 0s and 25s",
        ),
        ("--staleness-bound 0s", "--staleness-bound"),
        ("--drift-interval 25h", "--drift-interval"),
        ("--worker-threads 9999", "--worker-threads"),
        (
            "--pin-resources widgets.example.com",
            "--pin-resources widgets.example.com: write plural.version",
        ),
        ("--pin-resources *", "--pin-resources *: write"),
        ("--pin-resources apps.v1.", "--pin-resources"),
        (
            "--passthrough-resources Secrets",
            "--passthrough-resources Secrets: write",
        ),
        ("--cache-resources *pods", "--cache-resources *pods: write"),
        ("--auth-allow-ttl 2h", "--auth-allow-ttl must be between 0s"),
        (
            "--reauthorize-interval 0s",
            "--reauthorize-interval must be",
        ),
    ] {
        refused(&format!("serve {PLAIN} {flag}"), name);
    }
    for url in ["127.0.0.1:8001", "ftp://a", "http://a/b", "http://a?b"] {
        refused(
            &format!("serve --plain-http --auth none --upstream {url}"),
            "--upstream",
        );
    }
    refused("demo --watchers 0", "--watchers must be between 1 and");
    refused("apiserver --object-len 1", "--object-len");
    for kind in [
        "widgets",
        "widgets.v1=Widget",
        "widgets.v1.a.b=widget",
        "widgets.v1.a.b=Widget:pod",
    ] {
        refused(&format!("apiserver --extra-kinds {kind}"), "--extra-kinds");
    }
}

#[test]
fn several_api_servers_are_different_and_alike() {
    for (urls, reason) in [
        ("http://a,https://b", "write https:// for all API servers"),
        ("http://a:1,http://b,http://a:1", "is given twice"),
        ("http://a,http://A:80", "is given twice"),
        ("https://a:443,https://a/", "is given twice"),
        ("http://a,b", "write http:// or https://"),
    ] {
        refused(
            &format!("serve --plain-http --auth none --upstream {urls}"),
            reason,
        );
        let flags = "serve --plain-http --auth none --in-cluster";
        refused(&format!("{flags} --api-servers {urls}"), "--api-servers");
    }
    let many: Vec<String> = (0..17).map(|n| format!("http://h{n}")).collect();
    let many = format!("serve --in-cluster --api-servers {}", many.join(","));
    refused(&many, "give at most 16 API servers");
    refused(
        &format!("serve {PLAIN} --api-servers http://b"),
        "--api-servers needs --kubeconfig or --in-cluster",
    );
}

#[test]
fn flags_go_before_environment_before_file_before_defaults() {
    let file = format!(
        "{HEAD}listen: 127.0.0.1:1\nadminListen: 127.0.0.1:2\nlistsMax: 300\nlogLevel: debug\n"
    );
    let variables = [
        ("KUBE_FANOUT_LISTEN", "127.0.0.1:11"),
        ("KUBE_FANOUT_ADMIN_LISTEN", "127.0.0.1:12"),
    ];
    let line = format!("{PLAIN} --config {{file}} --listen 127.0.0.1:21");
    let found = serve(&line, &variables, Some(&file)).unwrap();
    assert_eq!(found.listen.port(), 21);
    assert_eq!(found.admin_listen.port(), 12);
    assert_eq!(found.admission.lists_max, 300);
    assert_eq!(found.ring.age_min, cli::RING_AGE_MIN.0);
    let all = settings(&format!("serve {line}"), &variables, Some(&file)).unwrap();
    assert_eq!(all.process.log_level, LogLevel::Debug);
}

#[test]
fn a_higher_layer_replaces_a_choice_whole() {
    let file = format!("{HEAD}kubeconfig: k\ncontext: c\ntlsCert: cert\ntlsKey: key\nauth: none\n");
    let from_file = serve("--config {file}", &[], Some(&file)).unwrap();
    assert_eq!(
        from_file.upstream,
        UpstreamSource::Kubeconfig {
            path: "k".into(),
            context: Some("c".into())
        }
    );
    let replaced = serve(&format!("--config {{file}} {PLAIN}"), &[], Some(&file)).unwrap();
    assert_eq!(replaced.transport, ListenTransport::PlainHttp);
    assert!(matches!(replaced.upstream, UpstreamSource::Url(_)));
    let context = serve("--config {file} --context d", &[], Some(&file)).unwrap();
    assert_eq!(
        context.upstream,
        UpstreamSource::Kubeconfig {
            path: "k".into(),
            context: Some("d".into())
        }
    );
    let denied = serve("--config {file} --plain-http=false", &[], Some(&file)).unwrap();
    assert!(matches!(denied.transport, ListenTransport::Tls { .. }));
}

#[track_caller]
fn file_refused(body: &str, message: &str) {
    let error = serve(&format!("{PLAIN} --config {{file}}"), &[], Some(body)).unwrap_err();
    assert!(error.contains(message), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn what_a_file_says_wrongly_is_named_by_line_and_key() {
    file_refused(
        &format!("{HEAD}lisen: 127.0.0.1:1\n"),
        "FILE:3: lisen: unknown key; did you mean listen?",
    );
    file_refused(
        &format!("{HEAD}tls:\n  cert: tls.crt\n"),
        "FILE:4: tls.cert: unknown key; did you mean tlsCert?",
    );
    file_refused(
        &format!("{HEAD}memory-max: 2Gi\n"),
        "FILE:3: memory-max: unknown key; did you mean memoryMax?",
    );
    file_refused(&format!("{HEAD}listen: {{}}\n"), "FILE:3: ");
    file_refused(
        &format!("{HEAD}\npinResources:\n  - pods.v1\nconfig: x\n"),
        "FILE:6: config: unknown key",
    );
    file_refused(
        &format!("{HEAD}listen: here\n"),
        "FILE:3: listen: invalid value 'here'",
    );
    file_refused(&format!("{HEAD}listen: {{a: b}}\n"), "FILE:3: ");
    file_refused(&format!("{HEAD}listen: [\n"), "FILE:");
    file_refused(
        &format!("{HEAD}listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n"),
        "FILE:4: ",
    );
    file_refused(
        "kind: GatewayConfiguration\n",
        "write apiVersion: kube-fanout.dev/v1alpha1",
    );
    file_refused("apiVersion: v1\nkind: Pod\n", "write apiVersion");
    file_refused("- a\n", "FILE:1: ");
    refused(
        &format!("serve {PLAIN} --config /nonexistent.yaml"),
        "/nonexistent.yaml: No such file",
    );
}

#[test]
fn a_variable_of_no_flag_is_refused_and_those_of_a_service_are_left_alone() {
    let check = |name: &str, value: &str| {
        let checked = check_variables([(OsString::from(name), OsString::from(value))]);
        checked.map_err(|error| error.one_line().unwrap())
    };
    for (name, value, message) in [
        (
            "KUBE_FANOUT_LISEN",
            "127.0.0.1:1",
            "KUBE_FANOUT_LISEN: unknown variable; did you mean KUBE_FANOUT_LISTEN?",
        ),
        (
            "KUBE_FANOUT_MEMORYMAX",
            "2Gi",
            "did you mean KUBE_FANOUT_MEMORY_MAX?",
        ),
        (
            "KUBE_FANOUT_PORT",
            "8443",
            "KUBE_FANOUT_PORT: unknown variable",
        ),
        (
            "KUBE_FANOUT_XYZZY",
            "1",
            "KUBE_FANOUT_XYZZY: unknown variable",
        ),
        ("KUBE_FANOUT_SERVICE_HOST", "name", "unknown variable"),
        ("KUBE_FANOUT_PORT_8443_TCP_SPEED", "1", "unknown variable"),
    ] {
        let error = check(name, value).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
    for (name, value) in [
        ("KUBE_FANOUT_LISTEN", "127.0.0.1:1"),
        // Of another command: the environment is that of a shell.
        ("KUBE_FANOUT_TOKEN_AUTH_FILE", "tokens.csv"),
        ("KUBE_FANOUT_PORT", "tcp://10.0.0.1:443"),
        ("KUBE_FANOUT_SERVICE_HOST", "fd00::1"),
        ("KUBE_FANOUT_SERVICE_PORT", "443"),
        ("KUBE_FANOUT_SERVICE_PORT_HTTPS", "443"),
        ("KUBE_FANOUT_PORT_8443_TCP", "tcp://10.0.0.1:8443"),
        ("KUBE_FANOUT_PORT_8443_TCP_PROTO", "tcp"),
        ("KUBE_FANOUT_PORT_8443_TCP_PORT", "8443"),
        ("KUBE_FANOUT_PORT_8443_TCP_ADDR", "10.0.0.1"),
        ("KUBE_FANOUT_OPERATORS_SERVICE_PORT_OPERATORS", "8444"),
        ("KUBE_FANOUT_OPERATORS_PORT_8444_UDP_ADDR", "10.0.0.1"),
        ("KUBE_FANOUT_COMMIT", "abc"),
        ("KUBE_FANOUTS", "1"),
        ("KUBECONFIG", "1"),
    ] {
        assert_eq!(check(name, value), Ok(()), "{name}");
    }
}

#[test]
fn resources_of_kubernetes_itself_are_pinned_without_their_version() {
    let line = format!(
        "{PLAIN} --pin-resources pods,deployments.apps,horizontalpodautoscalers.autoscaling,leases.v1.coordination.k8s.io"
    );
    let pinned = serve(&line, &[], None).unwrap().pin_resources;
    let names: Vec<String> = pinned.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "pods.v1",
            "deployments.v1.apps",
            "horizontalpodautoscalers.v2.autoscaling",
            "leases.v1.coordination.k8s.io"
        ]
    );
}

#[test]
fn lengths_of_kubernetes_are_read_in_flags_variables_and_files() {
    let file = format!("{HEAD}memoryMax: 2e9\n");
    let line = format!("{PLAIN} --config {{file}}");
    let variables = [("KUBE_FANOUT_RING_BYTES_MAX", "500Mi")];
    let found = serve(&line, &variables, Some(&file)).unwrap();
    assert_eq!(found.ring.bytes_max, 500 << 20);
    assert_eq!(found.admission.memory_max, 2_000_000_000);
    let found = serve(&format!("{line} --memory-max 1.5Gi"), &[], Some(&file));
    assert_eq!(found.unwrap().admission.memory_max, 3 << 29);
}

#[test]
fn bounds_that_are_no_settings_follow_from_those_that_are() {
    let found = |flags: &str| serve(&format!("{PLAIN} --state-dir /s {flags}"), &[], None).unwrap();
    let default = found("");
    assert_eq!(default.frame_len_max, 16 << 20);
    assert_eq!(default.ring.events_max, 102_400);
    assert_eq!(default.admission.lists_waiting_max, 16_384);
    assert_eq!(default.auth.deny_ttl.as_secs(), 30);
    assert_eq!(default.state.unwrap().len_max, 8 << 30);
    // A longer frame would push every other event out of the history.
    assert_eq!(found("--ring-bytes-max 1Mi").frame_len_max, 1 << 20);
    assert_eq!(found("--ring-bytes-max 1Gi").ring.events_max, 1 << 18);
    assert_eq!(found("--lists-max 2").admission.lists_waiting_max, 128);
    assert_eq!(found("--auth-allow-ttl 0s").auth.deny_ttl.as_secs(), 0);
    let bounded = |flags: &str| found(flags).state.unwrap().len_max;
    assert_eq!(bounded("--memory-max 1Gi"), 2 << 30);
    assert_eq!(bounded("--memory-max 64Gi"), 8 << 30);
}

#[test]
fn a_wrong_variable_is_named_and_strange_ones_are_left_alone() {
    let error = serve(PLAIN, &[("KUBE_FANOUT_RING_AGE_MIN", "75")], None).unwrap_err();
    assert!(
        error.starts_with("KUBE_FANOUT_RING_AGE_MIN: invalid value '75'"),
        "{error}"
    );
    let kubernetes = [
        ("KUBE_FANOUT_PORT", "tcp://10.0.0.1:443"),
        ("KUBE_FANOUT_SERVICE_HOST", "10.0.0.1"),
    ];
    assert!(serve(PLAIN, &kubernetes, None).is_ok());
    let by_variables = [
        ("KUBE_FANOUT_UPSTREAM", "http://127.0.0.1:8001"),
        ("KUBE_FANOUT_PLAIN_HTTP", "true"),
        ("KUBE_FANOUT_AUTH", "none"),
        ("KUBE_FANOUT_PIN_RESOURCES", "pods.v1,deployments.v1.apps"),
        ("KUBE_FANOUT_PASSTHROUGH_RESOURCES", ""),
    ];
    let found = serve("", &by_variables, None).unwrap();
    assert_eq!(
        found.pin_resources,
        [
            Gvr::new("", "v1", "pods"),
            Gvr::new("apps", "v1", "deployments")
        ]
    );
    assert_eq!(found.cached.denied, []);
}

#[track_caller]
fn prints_what_reads_back(line: &str) {
    let direct = settings(&format!("serve {line}"), &[], None).unwrap();
    let text = printed(&format!("config print {line}")).unwrap();
    assert_eq!(
        settings("serve --config {file}", &[], Some(&text)),
        Ok(direct),
        "{text}"
    );
}

#[test]
fn printed_settings_read_back_as_the_same_settings() {
    prints_what_reads_back(PLAIN);
    prints_what_reads_back(
        "--upstream http://a:1,http://b:2 --upstream http://c:3 --plain-http --auth none",
    );
    prints_what_reads_back(
        "--in-cluster --api-servers https://a:1,https://b --plain-http --auth none",
    );
    prints_what_reads_back("--kubeconfig k --api-servers https://a:1 --plain-http --auth none");
    prints_what_reads_back(
        "--kubeconfig /a: --context on --tls-cert '#c --tls-key [k --auth none --listen [::1]:0 --log-format json \
         --pin-resources pods.v1,widgets.v1beta2.a.example.com --passthrough-resources secrets,leases.coordination.k8s.io \
         --ring-bytes-max 100000000 --ring-age-min 1m --idle-resource-timeout 90s --worker-threads 3 \
         --connections-max 5 --watches-max 6 --lists-max 7 --memory-max 1GiB \
         --catch-up-resources pods,*.*.k8s.io --staleness-bound 2m --drift-interval 0s --drain-delay 3s --requests-per-goaway 1000 \
         --relay-percent 0.25",
    );
    prints_what_reads_back(
        "--in-cluster --tls-cert c --tls-key k --tls-sni-cert-key a,b:x.y;c,d --client-ca-file ca --anonymous --auth rbac \
         --token-audiences https://a,b --auth-allow-ttl 1s --reauthorize-interval 5s \
         --reauthorize-grace 0s --upstream-authorizers opaque --requestheader-client-ca-file r --requestheader-allowed-names n,m \
         --requestheader-uid-headers X-Uid --audit-policy-file p --audit-log-path /l \
         --operator-listen [::]:1 --exempt-users a,system:b \
         --exempt-groups system:masters --cache-resources pods,*.*.k8s.io --passthrough-resources=",
    );
    prints_what_reads_back(&format!("{PLAIN} --audit-policy-file p --audit-log-path -"));
    prints_what_reads_back(&format!(
        "{PLAIN} --state-dir /s --state-key-file k --state-exclude pods,*.*.k8s.io"
    ));
    prints_what_reads_back(&format!(
        "{PLAIN} --handover-from https://peers.a.svc:8443 --handover-ca-file ca --handover-server-name b --handover-token-file t \
         --rebalance-interval 30s"
    ));
    prints_what_reads_back(
        "--in-cluster --listen 0.0.0.0:1 --plain-http --auth none --i-know-this-is-insecure",
    );
}

#[test]
fn settings_are_printed_as_kubernetes_writes_them() {
    let line = format!("config print {PLAIN} --ring-bytes-max 67108864 --ring-age-min 90s");
    let text = printed(&line).unwrap();
    for line in [
        "upstream: [\"http://127.0.0.1:8001\"]",
        "plainHttp: true",
        "auth: \"none\"",
        "requestheaderUidHeaders: []",
        "idleResourceTimeout: 10m",
        "ringBytesMax: 64Mi",
        "ringAgeMin: 1m30s",
        "rebalanceInterval: 0s",
        "watchesMax: 250000",
        "otlpRatio: 0.01",
        "drainTimeout: 25s",
    ] {
        assert!(
            text.lines().any(|printed| printed == line),
            "{line}\n{text}"
        );
    }
    assert!(!text.contains("kubeconfig"), "{text}");
}

#[test]
fn caches_are_taken_over_only_where_nobody_listens() {
    for (flags, message) in [
        (
            "--handover-ca-file a",
            "--handover-ca-file needs --handover-from",
        ),
        ("--handover-token-file a", "needs --handover-from"),
        ("--handover-from peers", "write https:// and a host"),
        (
            "--handover-from http://10.0.0.1:1",
            "http:// is for loopback",
        ),
        ("--handover-from http://peers:1", "http:// is for loopback"),
        ("--handover-from https://a/b", "without a path"),
        (
            "--handover-from https://a --handover-server-name a_b",
            "not a host name",
        ),
        ("--rebalance-interval 30s", "needs --handover-from"),
        (
            "--handover-from https://a --rebalance-interval 10ms",
            "must be between",
        ),
    ] {
        refused(&format!("serve {PLAIN} {flags}"), message);
    }
    for url in [
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "https://[fd00::1]:8443",
    ] {
        let line = format!("serve {PLAIN} --handover-from {url}");
        assert!(settings(&line, &[], None).is_ok(), "{url}");
    }
}

/// Nothing would use them, and the address is logged.
#[test]
fn a_user_in_a_url_is_refused_and_not_repeated() {
    for line in [
        "--upstream https://root:hunter2@a.example --plain-http --auth none".to_owned(),
        "--upstream https://hunter2@a.example:6443 --plain-http --auth none".to_owned(),
        "--in-cluster --api-servers https://a:hunter2@b.example --plain-http --auth none"
            .to_owned(),
        format!("{PLAIN} --handover-from https://a:hunter2@b.example"),
    ] {
        let error = settings(&format!("serve {line}"), &[], None).unwrap_err();
        assert!(error.contains("write no user and password"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn checking_the_settings_refuses_what_serve_refuses() {
    let checked = settings(&format!("config check {PLAIN}"), &[], None);
    assert!(matches!(checked.unwrap().task, ProcessTask::ConfigCheck(_)));
    refused("config check --plain-http", "give one of");
}

#[test]
fn a_check_takes_the_settings_of_serve_and_its_own() {
    let check = |line: &str, file: Option<&str>| {
        let variables = [("KUBE_FANOUT_GATEWAY", "https://[::1]:8443")];
        let task = settings(&format!("check {line}"), &variables, file)?.task;
        let ProcessTask::Check(check) = task else {
            panic!("{task:?}");
        };
        Ok::<_, String>(*check)
    };
    let file = format!("{HEAD}listen: 127.0.0.1:1234\n");
    let line = format!("{PLAIN} --config {{file}} --category live,upstream --client-names a.b");
    let settings = check(&line, Some(&file)).unwrap();
    assert_eq!(settings.serve.listen.port(), 1234);
    let chosen = [CheckCategory::Upstream, CheckCategory::Live];
    assert_eq!(settings.categories, chosen);
    // Clients are to find the name that the gateway is reached by.
    assert_eq!(settings.client_names, ["a.b", "::1"]);
    assert_eq!(check(PLAIN, None).unwrap().categories.len(), 10);
    // A file that passes must be one that `serve` accepts.
    let file = format!("{HEAD}gateway: https://127.0.0.1\n");
    let error = check(&format!("{PLAIN} --config {{file}}"), Some(&file)).unwrap_err();
    assert!(error.contains("FILE:3: gateway: unknown key"), "{error}");
}

#[test]
fn extra_kinds_are_namespaced_unless_they_say_cluster() {
    let line = "apiserver --extra-kinds widgets.v1.example.com=Widget,zones.v1beta1.example.com=Zone:cluster";
    let ProcessTask::Apiserver(found) = settings(line, &[], None).unwrap().task else {
        panic!("not an apiserver");
    };
    let kinds: Vec<_> = found
        .extra_kinds
        .iter()
        .map(|k| (k.gvr.to_string(), &*k.kind, k.namespaced))
        .collect();
    assert_eq!(
        kinds,
        [
            ("widgets.v1.example.com".to_owned(), "Widget", true),
            ("zones.v1beta1.example.com".to_owned(), "Zone", false)
        ]
    );
}

#[test]
fn the_embedded_server_checks_callers_if_a_flag_says_how() {
    let auth = |line: &str| {
        let line = format!("apiserver {line}");
        let ProcessTask::Apiserver(found) = settings(&line, &[], None).unwrap().task else {
            panic!("not an apiserver");
        };
        found.auth
    };
    assert_eq!(auth("--anonymous-auth=false --api-audiences a"), None);
    let tls = "--tls-cert c --tls-key k";
    let found = auth("--token-auth-file t --api-audiences a,b").unwrap();
    assert_eq!(found.token_file, Some("t".into()));
    assert_eq!(found.audiences, ["a", "b"]);
    assert_eq!(
        (found.anonymous, found.authorization),
        (true, AuthorizationMode::AlwaysAllow)
    );
    let found = auth("--authorization-mode RBAC --anonymous-auth=false").unwrap();
    assert_eq!(
        (found.anonymous, found.authorization),
        (false, AuthorizationMode::Rbac)
    );
    let found = auth(&format!(
        "{tls} --client-ca-file a --requestheader-client-ca-file p --requestheader-allowed-names x,y"
    ))
    .unwrap();
    assert_eq!(found.client_ca, Some("a".into()));
    let names = vec!["x".to_owned(), "y".to_owned()];
    assert_eq!(found.front_proxy, Some(("p".into(), names)));
    for (flags, message) in [
        ("--client-ca-file a", "--client-ca-file needs --tls-cert"),
        (
            "--requestheader-client-ca-file a",
            "--requestheader-client-ca-file needs --tls-cert",
        ),
        (
            "--requestheader-allowed-names x",
            "--requestheader-allowed-names needs",
        ),
        ("--tls-cert c", "--tls-cert needs --tls-key"),
        ("--tls-key k", "--tls-key needs --tls-cert"),
        ("--authorization-mode Webhook", "--authorization-mode"),
    ] {
        refused(&format!("apiserver {flags}"), message);
    }
}

#[test]
fn a_wrong_command_line_is_one_line_and_help_is_none() {
    refused("", "no command given; see --help");
    refused(
        "serve --lisen x",
        "unexpected argument '--lisen' found; did you mean --listen?",
    );
    refused(
        "serv",
        "unrecognized subcommand 'serv'; did you mean serve?",
    );
    refused("config chek", "did you mean check?");
    refused(
        &format!("serve {PLAIN} --log-level inof"),
        "did you mean info?",
    );
    refused(
        "serve --xyzzy x",
        "unexpected argument '--xyzzy' found; see --help",
    );
    refused(
        "man srve",
        "there is no command \"srve\"; did you mean serve?",
    );
    refused("man config prnt", "did you mean config print?");
    refused("man xyzzy", "; --help lists the commands");
    for flag in ["--kubeconfig", "--kubecnfig"] {
        refused(
            &format!("{flag} x serve"),
            "did you mean kube-fanout serve --kubeconfig?",
        );
    }
    refused(
        "check --kubeconfig x --compare-resource deployments.aps",
        "did you mean deployments.apps?",
    );
    assert_eq!(settings("--help", &[], None), Err(String::new()));
    assert_eq!(settings("--version", &[], None), Err(String::new()));
}

#[test]
fn a_setting_that_was_removed_is_refused_with_what_replaces_it() {
    let replaced = "was removed: kube_fanout_watch_events_age_seconds";
    refused(
        &format!("serve {PLAIN} --canary-namespace a"),
        &format!("--canary-namespace: {replaced}"),
    );
    let file = format!("{HEAD}canaryInterval: 5s\n");
    let message = settings(
        &format!("serve {PLAIN} --config {{file}}"),
        &[],
        Some(&file),
    );
    let message = message.unwrap_err();
    assert!(
        message.contains(&format!("FILE:3: canaryInterval: {replaced}")),
        "{message}"
    );
    let variable = ("KUBE_FANOUT_CANARY_NAMESPACE".into(), "a".into());
    let message = check_variables([variable]).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("KUBE_FANOUT_CANARY_NAMESPACE: {replaced}")),
        "{message}"
    );
    refused(
        &format!("serve {PLAIN} --lists-waiting-max 3"),
        "--lists-waiting-max: was removed: it is 64 times --lists-max",
    );
    refused(
        "size --watches 5000",
        "kube-fanout size: was removed: docs/SCALING.md has",
    );
}

#[test]
fn a_log_filter_adds_to_the_level_or_replaces_it() {
    let filter = |line: &str, file: Option<&str>| {
        let settings = settings(&format!("serve {PLAIN} {line}"), &[], file)?;
        Ok::<_, String>(settings.process.filter().to_string())
    };
    let module = "kube_fanout::upstream=debug";
    for (line, expected) in [
        ("", "info".to_owned()),
        ("--log-level warn", "warn".to_owned()),
        (
            &format!("--log-level warn --log-filter {module}"),
            format!("warn,{module}"),
        ),
        (
            &format!("--log-level warn --log-filter off,{module}"),
            format!("off,{module}"),
        ),
    ] {
        assert_eq!(filter(line, None), Ok(expected), "{line}");
    }
    let file = format!("{HEAD}logFilter: [error, '{module}']\n");
    let read = filter("--config {file}", Some(&file));
    assert_eq!(read, Ok(format!("error,{module}")));
    let file = format!("{HEAD}logFilter: loud\n");
    let refused = filter("--config {file}", Some(&file)).unwrap_err();
    assert!(refused.contains("FILE:3: logFilter: "), "{refused}");
    assert!(
        refused.contains("is neither a level nor module=level"),
        "{refused}"
    );
}

/// What a command prints.
fn printed(line: &str) -> Result<String, String> {
    let task = settings(line, &[], None)?.task;
    let ProcessTask::Print(text) = task else {
        panic!("{task:?}");
    };
    Ok(text)
}

#[test]
fn completions_know_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&format!("completions {shell}")).unwrap();
        assert!(
            script.contains("pin-resources") && script.contains("apiserver"),
            "{shell}"
        );
    }
    assert!(printed("completions csh").is_err());
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    for (command, part) in [
        ("", "kube\\-fanout\\-serve(1)"),
        ("serve", "pin\\-resources"),
        ("config print", "pin\\-resources"),
        ("check", "pin\\-resources"),
    ] {
        let page = printed(&format!("man {command}")).unwrap();
        assert!(page.contains(".TH") && page.contains(part), "{command}");
    }
    let error = printed("man config nothing").unwrap_err();
    assert!(error.contains("\"config nothing\""), "{error}");
}

/// The layers find a flag by its name. One with another id would end the process.
#[test]
fn every_command_reads_its_flags_by_their_names() {
    for (path, command) in layers::commands() {
        for flag in command.get_arguments() {
            let name = flag.get_long().map(|name| name.replace('-', "_"));
            assert!(
                name.is_none_or(|name| name == flag.get_id().as_str()),
                "{path} --{flag}"
            );
        }
    }
}

fn serving(line: &str) -> Result<ServingRequest, String> {
    let task = settings(&format!("serving {line}"), &[], None)?.task;
    let ProcessTask::Serving(request) = task else {
        panic!("{task:?}");
    };
    Ok(request)
}

#[test]
fn serving_shows_puts_for_a_time_and_resets() {
    let shown = serving("").unwrap();
    assert_eq!(shown.change, ServingChange::Show);
    assert_eq!(shown.admin, ["http://127.0.0.1:9090/"]);
    let put = serving("passthrough --for 30m --admin http://a:1,http://b:2").unwrap();
    let half_an_hour = std::time::Duration::from_secs(1800);
    let passthrough = "passthrough".parse().unwrap();
    assert_eq!(put.change, ServingChange::Put(passthrough, half_an_hour));
    assert_eq!(put.admin, ["http://a:1/", "http://b:2/"]);
    assert_eq!(serving("--reset").unwrap().change, ServingChange::Reset);
    for (line, words) in [
        ("passthrough", "--for"),
        ("--for 10m", "RULES"),
        ("passthrough --for 10m --reset", "--reset"),
        ("passthrough --for soon", "not a duration"),
        ("everything --for 10m", "--serving"),
        ("--admin https://a:1", "write http://host:port"),
    ] {
        let error = serving(line).unwrap_err();
        assert!(
            error.contains(words) && !error.contains('\n'),
            "{line}: {error}"
        );
    }
}
