//! Pods that change, and selectors of which each matches one pod. What the events are used for is measured elsewhere.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube_fanout::cache::{
    CacheWriter, Change, DispatchOutcome, Event, Observer, Retention, Sequence,
};
use kube_fanout::resource::{
    Encoding, EventKind, FieldTable, Gvr, Layout, Object, ObjectParts, ResourceKind,
    ResourceVersion,
};
use kube_fanout::selector::{FieldSelector, LabelSelector, Selector};

/// The attribute by which a selector selects its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// `spec.nodeName`, as kubelets do.
    Node,
    /// Namespace and name, as kubelets do for ConfigMaps.
    Name,
    /// The namespace in the path.
    Namespace,
    /// One value of one label.
    Label,
    /// The presence of a label.
    Presence,
    /// A label with one of several values.
    Set,
}

impl By {
    /// The selector of the `index`th watcher. It matches only the `index`th pod.
    pub(crate) fn selector(self, index: usize) -> Selector {
        let mut selector = Selector::default();
        match self {
            Self::Node => selector.fields = fields(&format!("spec.nodeName=node-{index}")),
            Self::Name => {
                selector.fields = fields(&format!("metadata.name=pod-{index}"));
                selector.namespace = Some(format!("team-{index}"));
            }
            Self::Namespace => selector.namespace = Some(format!("team-{index}")),
            Self::Label => selector.labels = labels(&format!("app=app-{index}")),
            Self::Presence => selector.labels = labels(&format!("own-{index}")),
            Self::Set => {
                selector.labels = labels(&format!("app in (app-{index},no-{index},nor-{index})"));
            }
        }
        selector
    }
}

fn fields(text: &str) -> FieldSelector {
    FieldSelector::parse(text, table()).unwrap_or_default()
}

fn labels(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap_or_default()
}

fn table() -> FieldTable {
    FieldTable::of(&kind().gvr)
}

pub(crate) fn kind() -> ResourceKind {
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

/// Approximate length of a pod in bytes.
const LEN: usize = 1_024;

fn pod(index: usize, version: u64) -> Object {
    const HEAD: &str = r#"{"type":"MODIFIED","object":"#;
    let json = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{index}","text":"{}"}}}}"#,
        "x".repeat(LEN)
    );
    let values = [
        &*format!("node-{index}"),
        "Always",
        "default-scheduler",
        "default",
        "false",
        "Running",
        "10.1.2.3",
        "",
        "",
    ];
    let label = |key: &str, value: &str| (key.to_owned().into(), value.to_owned().into());
    let parts = ObjectParts {
        namespace: format!("team-{index}").into(),
        name: format!("pod-{index}").into(),
        uid: format!("uid-{index}").into(),
        resource_version: ResourceVersion(version),
        labels: vec![
            label("app", &format!("app-{index}")),
            label("pod-template-hash", "5d4f8c7b9"),
            label(&format!("own-{index}"), "true"),
        ],
        fields: values.map(Into::into).into(),
        ..ObjectParts::default()
    };
    let frame = [HEAD, &json, "}\n"].concat();
    Object::in_frame(parts, Encoding::Json, frame.as_bytes(), HEAD.len() as u32)
}

/// Passes each event that a writer dispatches to a function, one at a time.
struct Each<F>(Mutex<F>);

impl<F> fmt::Debug for Each<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each")
    }
}

impl<F: FnMut(Arc<Event>) + Send> Observer for Each<F> {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        _: Sequence,
        _: ResourceVersion,
        _: Instant,
    ) -> DispatchOutcome {
        let mut visit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().cloned().for_each(&mut *visit);
        DispatchOutcome {
            events: events.len(),
            ..DispatchOutcome::default()
        }
    }
}

/// One event: the history is not measured.
const RETENTION: Retention = Retention {
    segment_slots: 1,
    events_min: 0,
    events_max: 1,
    bytes_max: 0,
    age_max: Duration::ZERO,
};

/// Calls the function with `count` changes of `pods` pods in turn; each pod's first change creates it. Returns the writer with the final
/// state.
pub(crate) fn each(
    pods: usize,
    count: usize,
    visit: impl FnMut(Arc<Event>) + Send + 'static,
) -> CacheWriter {
    let now = Instant::now();
    let mut writer = CacheWriter::new(kind(), RETENTION, Arc::new(Each(Mutex::new(visit))));
    // The first list cannot be older than the cache.
    let _ = writer.replace(Vec::new(), ResourceVersion(0), now);
    for n in 0..count {
        // The stride has no common factor with the number of pods: successive changes touch distant memory.
        let pod = pod(n.wrapping_mul(7_919) % pods, n as u64 + 1);
        writer.apply([Change::Put(pod)], now);
    }
    writer
}

/// The same events, as a vector.
pub(crate) fn history(pods: usize, count: usize) -> Vec<Arc<Event>> {
    let kept = Arc::new(Mutex::new(Vec::with_capacity(count)));
    let keep = Arc::clone(&kept);
    each(pods, count, move |event| {
        keep.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    });
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut kept)
}

/// Whether the event creates its pod.
pub(crate) fn makes(event: &Event) -> bool {
    event.kind() == EventKind::Added
}
