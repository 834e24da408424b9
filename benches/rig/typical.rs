//! Pods as controllers and kubelets leave them, in both encodings; no two are alike.

use kube_fanout::decode::{WatchLine, scan_frame};
use kube_fanout::resource::protobuf::type_meta;
use kube_fanout::resource::wire::{WireFields, put_bytes};
use kube_fanout::resource::{FieldTable, Gvr};

/// A stream that begins with a pod that has all selectable fields and managed fields.
pub(crate) const CAPTURED: &[u8] = include_bytes!("../../tests/captured/pods.frames");

/// The fields of pods that selectors can use.
pub(crate) fn fields() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

/// How many containers and field managers a pod has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) containers: usize,
    pub(crate) managers: usize,
}

impl Size {
    /// About 4 KB, a third of it managed fields.
    pub(crate) const LARGE: Self = Self {
        containers: 3,
        managers: 3,
    };

    /// 1.2 to 2.9 KB, depending on the index.
    pub(crate) const fn of(index: usize) -> Self {
        Self {
            containers: 1 + index % 3,
            managers: index % 3,
        }
    }
}

/// Length of a stream's first frame.
pub(crate) fn frame_len(stream: &[u8]) -> usize {
    let length = stream.first_chunk().copied().unwrap_or_default();
    4 + u32::from_be_bytes(length) as usize
}

/// A pod as a list item, without `kind` and `apiVersion`; its managed fields contain strings with escapes.
pub(crate) fn item(index: usize, size: Size) -> String {
    let container = |n: usize| {
        format!(
            r#"{{"name":"c{n}","image":"registry.example/team/app:1.{index}","args":["--flag=\"quoted\"","--level=3"],"env":[{{"name":"A","value":"{index}"}},{{"name":"PATH","value":"/usr/local/bin:/usr/bin:/bin"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"64Mi"}}}},"volumeMounts":[{{"name":"token","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}}"#
        )
    };
    let managed = |n: usize| {
        let manager = ["kube-controller-manager", "kubelet", "kubectl"][n % 3];
        format!(
            r#"{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"2026-11-21T02:54:13Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:labels":{{".":{{}},"f:app":{{}},"f:hash":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"c0\"}}":{{".":{{}},"f:image":{{}},"f:env":{{".":{{}},"k:{{\"name\":\"A\"}}":{{".":{{}},"f:name":{{}},"f:value":{{}}}}}}}},"k:{{\"name\":\"c1\"}}":{{".":{{}},"f:image":{{}},"f:name":{{}},"f:resources":{{}}}}}}}},"f:status":{{"f:conditions":{{"k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:status":{{}},"f:type":{{}}}}}}}}}}}}"#
        )
    };
    let condition = |kind: &str| {
        format!(
            r#"{{"type":"{kind}","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-21T02:54:13Z"}}"#
        )
    };
    let containers: Vec<_> = (0..size.containers).map(container).collect();
    let managers: Vec<_> = (0..size.managers).map(managed).collect();
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    format!(
        r#"{{"metadata":{{"name":"{}","generateName":"app-","namespace":"{}","uid":"e0107c60-3809-4949-b3b5-{index:012}","resourceVersion":"{}","creationTimestamp":"2026-11-21T02:54:13Z","labels":{{"app":"demo","hash":"5d4f8c7b9","tier":"web"}},"managedFields":[{}]}},"spec":{{"containers":[{}],"restartPolicy":"Always","nodeName":"node-{}","schedulerName":"default-scheduler","serviceAccountName":"default"}},"status":{{"phase":"Running","conditions":[{}],"hostIP":"10.0.0.1","podIP":"10.1.2.3","podIPs":[{{"ip":"10.1.2.3"}}],"qosClass":"Burstable"}}}}"#,
        name(index),
        namespace(index),
        version(index),
        managers.join(","),
        containers.join(","),
        index % 100,
        conditions.join(","),
    )
}

/// The same pod as a separate object.
pub(crate) fn object(index: usize, size: Size) -> String {
    let item = item(index, size);
    format!(r#"{{"kind":"Pod","apiVersion":"v1",{}"#, &item[1..])
}

/// A pod's protobuf message: the captured one with another name and 0 to 1,000 additional bytes in an annotation.
pub(crate) fn message(index: usize) -> Vec<u8> {
    let frame = &CAPTURED[..frame_len(CAPTURED)];
    let Ok(WatchLine::Event { object, .. }) = scan_frame(frame, fields()) else {
        unreachable!("the captured stream begins with a pod");
    };
    let pod = object.of(frame);
    let mut out = Vec::with_capacity(pod.len() + 1_100);
    for field in WireFields::new(pod).flatten() {
        match field.bytes() {
            Some(metadata) if field.number == 1 => {
                put_bytes(&mut out, 1, &renamed(metadata.of(pod), index));
            }
            _ => out.extend_from_slice(field.span.of(pod)),
        }
    }
    out
}

fn renamed(metadata: &[u8], index: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(metadata.len() + 1_100);
    for field in WireFields::new(metadata).flatten() {
        match field.number {
            1 => put_bytes(&mut out, 1, name(index).as_bytes()),
            3 => put_bytes(&mut out, 3, namespace(index).as_bytes()),
            6 => put_bytes(&mut out, 6, version(index).to_string().as_bytes()),
            _ => out.extend_from_slice(field.span.of(metadata)),
        }
    }
    let mut annotation = Vec::new();
    put_bytes(&mut annotation, 1, b"text");
    put_bytes(&mut annotation, 2, &vec![b'x'; index * 977 % 1_000]);
    put_bytes(&mut out, 12, &annotation);
    out
}

/// `apiVersion` and `kind` of the listed pods.
pub(crate) fn pod_type() -> Vec<u8> {
    type_meta("v1", "Pod")
}

/// Names ascend with the index, as in lists.
fn name(index: usize) -> String {
    format!("app-{index:06}")
}

/// Namespaces ascend too.
fn namespace(index: usize) -> String {
    format!("team-{:03}", index / 1_000)
}

const fn version(index: usize) -> usize {
    index + 1_000_000
}
