//! A list of pods of a chosen size.

/// A list body of `count` pods whose items are `len` bytes each.
pub(crate) fn list(count: usize, len: usize, version: u64) -> Vec<u8> {
    let items: Vec<_> = (0..count).map(|index| item(index, len)).collect();
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
    .into_bytes()
}

/// What the gateway reads of a pod is here as usual; an annotation fills the rest.
fn item(index: usize, len: usize) -> String {
    let head = format!(
        r#"{{"metadata":{{"name":"app-5d4f8c7b9-{index:06}","generateName":"app-5d4f8c7b9-","namespace":"team-{:02}","uid":"e0107c60-3809-4949-b3b5-{index:012}","resourceVersion":"{}","creationTimestamp":"2026-11-21T02:54:13Z","labels":{{"app":"demo","pod-template-hash":"5d4f8c7b9","tier":"web"}},"annotations":{{"text":""#,
        index % 20,
        100_000 + index,
    );
    let end = format!(
        r#""}}}},"spec":{{"containers":[],"restartPolicy":"Always","serviceAccountName":"default","nodeName":"node-{:04}","schedulerName":"default-scheduler"}},"status":{{"phase":"Running","podIP":"10.1.2.3","podIPs":[{{"ip":"10.1.2.3"}}]}}}}"#,
        index % 1_000
    );
    let text = "x".repeat(len.saturating_sub(head.len() + end.len()));
    [head, text, end].concat()
}
