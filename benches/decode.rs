//! How long decoding takes per watch event and per list item, beside serde_json reading the same fields. In protobuf: a pod
//! that a real server sent, beside a copy of its bytes.
//!
//! A plain program: `cargo bench --bench decode`. Wall times on a busy machine mislead; compare lines of one run.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench is a driver and reads the clock"
)]

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use kube_fanout::decode::{
    LengthFramer, LineFramer, WatchLine, is_canonical_frame, scan_event, scan_frame, scan_line,
    scan_list, scan_object, watch_form,
};
use kube_fanout::resource::{FieldTable, Gvr, Layout};

const EVENT_COUNT: usize = 2_000;
/// Enough rounds for a steady figure in a few seconds.
const ROUND_COUNT: u32 = 15;
const CHUNK_LEN: usize = 16 * 1024;

fn main() -> std::io::Result<()> {
    let lines: Vec<String> = (0..EVENT_COUNT).map(line).collect();
    let stream: Vec<u8> = lines.join("\n").into_bytes();
    let spans: Vec<_> = lines
        .iter()
        .filter_map(|line| scan_event(line.as_bytes()).ok())
        .map(|envelope| envelope.object)
        .collect();
    let objects: Vec<&[u8]> = lines
        .iter()
        .zip(&spans)
        .map(|(line, span)| span.of(line.as_bytes()))
        .collect();

    let mut out = std::io::stdout().lock();
    writeln!(out, "{} bytes per event", stream.len() / EVENT_COUNT)?;
    let mut report = |name: &str, each: &mut dyn FnMut() -> usize| {
        writeln!(out, "{name:28} {:>9.3} µs per event", micros(best(each)))
    };
    report_scanners(&mut report, &lines, &objects, &stream)?;
    report_serde(&mut report, &lines, &objects)?;
    writeln!(out, "{} bytes per protobuf event", frame_len(CAPTURED))?;
    let mut report = |name: &str, each: &mut dyn FnMut() -> usize| {
        writeln!(out, "{name:28} {:>9.3} µs per event", micros(best(each)))
    };
    report_protobuf(&mut report)
}

/// A stream that begins with a pod of all selectable fields and managed fields.
const CAPTURED: &[u8] = include_bytes!("../tests/captured/pods.frames");

/// Length of a stream's first frame.
fn frame_len(stream: &[u8]) -> usize {
    let length = stream.first_chunk().copied().unwrap_or_default();
    4 + u32::from_be_bytes(length) as usize
}

type Report<'a> = dyn FnMut(&str, &mut dyn FnMut() -> usize) -> std::io::Result<()> + 'a;

fn report_scanners(
    report: &mut Report<'_>,
    lines: &[String],
    objects: &[&[u8]],
    stream: &[u8],
) -> std::io::Result<()> {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let list = list_body(objects);
    report("copy (floor)", &mut || {
        lines
            .iter()
            .map(|line| black_box(line.as_bytes().to_vec()).len())
            .sum()
    })?;
    report("LineFramer", &mut || frame(stream))?;
    report("scan_event", &mut || {
        lines
            .iter()
            .filter(|line| scan_event(line.as_bytes()).is_ok())
            .count()
    })?;
    report("scan_line (event + object)", &mut || {
        lines
            .iter()
            .filter(|line| scan_line(line.as_bytes(), pods).is_ok())
            .count()
    })?;
    report("scan_object", &mut || {
        objects
            .iter()
            .filter(|object| scan_object(object, pods).is_ok())
            .count()
    })?;
    report("scan_list", &mut || {
        scan_list(&list).map_or(0, |page| page.items.len())
    })?;
    report("watch_form", &mut || {
        objects
            .iter()
            .map(|item| watch_form(item, "Pod", "v1", Layout::Typed).len())
            .sum()
    })
}

fn report_protobuf(report: &mut Report<'_>) -> std::io::Result<()> {
    let pods = FieldTable::of(&Gvr::new("", "v1", "pods"));
    let frame = &CAPTURED[..frame_len(CAPTURED)];
    let stream = frame.repeat(EVENT_COUNT);
    let frames: Vec<Vec<u8>> = stream.chunks(frame.len()).map(<[u8]>::to_vec).collect();
    report("copy (floor)", &mut || {
        frames
            .iter()
            .map(|frame| black_box(frame.clone()).len())
            .sum()
    })?;
    report("LengthFramer", &mut || {
        let mut framer = LengthFramer::new(4 << 20);
        let mut count = 0;
        for chunk in stream.chunks(CHUNK_LEN) {
            framer.push(chunk);
            while let Ok(Some(frame)) = framer.next_frame() {
                count += black_box(frame).len();
            }
        }
        count
    })?;
    report("scan_frame", &mut || {
        frames
            .iter()
            .filter(|frame| scan_frame(frame, pods).is_ok())
            .count()
    })?;
    report("scan_frame, canonical", &mut || {
        frames
            .iter()
            .filter(|frame| match scan_frame(frame, pods) {
                Ok(WatchLine::Event { object, .. }) => is_canonical_frame(frame, object),
                _ => false,
            })
            .count()
    })
}

fn report_serde(
    report: &mut Report<'_>,
    lines: &[String],
    objects: &[&[u8]],
) -> std::io::Result<()> {
    report("serde_json, same fields", &mut || {
        lines
            .iter()
            .filter(|line| serde_json::from_str::<Event<'_>>(line).is_ok())
            .count()
    })?;
    // What a typed informer does after scan_line.
    report("serde_json, whole typed pod", &mut || {
        objects
            .iter()
            .filter(|object| {
                serde_json::from_slice::<k8s_openapi::api::core::v1::Pod>(object).is_ok()
            })
            .count()
    })?;
    report("serde_json::Value", &mut || {
        lines
            .iter()
            .filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
            .count()
    })
}

fn frame(stream: &[u8]) -> usize {
    let mut framer = LineFramer::new(4 << 20);
    let mut count = 0;
    for chunk in stream.chunks(CHUNK_LEN) {
        framer.push(chunk);
        while let Ok(Some(line)) = framer.next_line() {
            count += black_box(line).len();
        }
    }
    count
}

/// The shortest of several rounds: what disturbs only ever adds.
fn best(each: &mut dyn FnMut() -> usize) -> Duration {
    let round = |_| {
        let start = Instant::now();
        black_box(each());
        start.elapsed()
    };
    (0..ROUND_COUNT).map(round).min().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "two thousand")]
fn micros(round: Duration) -> f64 {
    round.as_secs_f64() * 1e6 / EVENT_COUNT as f64
}

/// A pod as a kubelet leaves it: about 5 KiB, a third of it managed fields with escaped quotes.
fn line(index: usize) -> String {
    let container = |n: usize| {
        format!(
            r#"{{"name":"c{n}","image":"registry.example/team/app:1.{index}","args":["--flag=\"quoted\"","--level=3"],"env":[{{"name":"A","value":"{index}"}},{{"name":"PATH","value":"/usr/local/bin:/usr/bin:/bin"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"64Mi"}}}},"volumeMounts":[{{"name":"token","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}}"#
        )
    };
    let managed = |manager: &str| {
        format!(
            r#"{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"2026-11-21T02:54:13Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:labels":{{".":{{}},"f:app":{{}},"f:hash":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"c0\"}}":{{".":{{}},"f:image":{{}},"f:env":{{".":{{}},"k:{{\"name\":\"A\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}}}}},"k:{{\"name\":\"c1\"}}":{{".":{{}},"f:image":{{}},"f:name":{{}},"f:resources":{{}}}}}}}},"f:status":{{"f:conditions":{{"k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:status":{{}},"f:type":{{}}}}}}}}}}}}"#
        )
    };
    let condition = |kind: &str| {
        format!(
            r#"{{"type":"{kind}","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-21T02:54:13Z"}}"#
        )
    };
    format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"app-{index}","generateName":"app-","namespace":"team-{}","uid":"e0107c60-3809-4949-b3b5-{index:012}","resourceVersion":"{}","creationTimestamp":"2026-11-21T02:54:13Z","labels":{{"app":"demo","hash":"5d4f8c7b9","tier":"web"}},"managedFields":[{},{},{}]}},"spec":{{"containers":[{},{},{}],"restartPolicy":"Always","nodeName":"node-{}","schedulerName":"default-scheduler","serviceAccountName":"default"}},"status":{{"phase":"Running","conditions":[{},{},{},{}],"hostIP":"10.0.0.1","podIP":"10.1.2.3","podIPs":[{{"ip":"10.1.2.3"}}],"qosClass":"Burstable"}}}}}}"#,
        index % 20,
        index + 1_000_000,
        managed("kube-controller-manager"),
        managed("kubelet"),
        managed("kubectl"),
        container(0),
        container(1),
        container(2),
        index % 100,
        condition("Initialized"),
        condition("Ready"),
        condition("ContainersReady"),
        condition("PodScheduled"),
    )
}

fn list_body(objects: &[&[u8]]) -> Vec<u8> {
    let head =
        br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
    [&head[..], &objects.join(&b','), b"]}\n"].concat()
}

/// What a typed, borrowed reading of the same fields would be.
#[derive(serde::Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    _kind: &'a str,
    #[serde(borrow, rename = "object")]
    _object: Pod<'a>,
}

#[derive(serde::Deserialize)]
struct Pod<'a> {
    #[serde(borrow, rename = "metadata")]
    _metadata: Metadata<'a>,
    #[serde(borrow, rename = "spec")]
    _spec: Spec<'a>,
    #[serde(borrow, rename = "status")]
    _status: Status<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(rename = "name")]
    _name: &'a str,
    #[serde(rename = "namespace")]
    _namespace: &'a str,
    #[serde(rename = "uid")]
    _uid: &'a str,
    #[serde(rename = "resourceVersion")]
    _resource_version: &'a str,
    #[serde(borrow, rename = "labels")]
    _labels: std::collections::BTreeMap<&'a str, std::borrow::Cow<'a, str>>,
}

#[derive(serde::Deserialize)]
struct Spec<'a> {
    #[serde(rename = "nodeName")]
    _node_name: &'a str,
}

#[derive(serde::Deserialize)]
struct Status<'a> {
    #[serde(rename = "phase")]
    _phase: &'a str,
}
