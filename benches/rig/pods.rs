//! Pods of a given size, in both encodings. The fields that the gateway reads have realistic values; an annotation fills the rest.

use kube_fanout::resource::wire::put_bytes;

const LABELS: [(&str, &str); 3] = [
    ("app", "demo"),
    ("pod-template-hash", "5d4f8c7b9"),
    ("tier", "web"),
];

/// A pod at one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    /// Its number among the pods.
    pub(crate) index: usize,
    /// Its length as a list item, in bytes.
    pub(crate) len: usize,
    pub(crate) version: u64,
}

impl Pod {
    fn name(self) -> String {
        format!("app-5d4f8c7b9-{:06}", self.index)
    }

    fn namespace(self) -> String {
        format!("team-{:02}", self.index % 20)
    }

    fn uid(self) -> String {
        format!("e0107c60-3809-4949-b3b5-{:012}", self.index)
    }

    fn node(self) -> String {
        format!("node-{:04}", self.index % 1_000)
    }

    /// The pod as a JSON list item.
    pub(crate) fn json(self) -> String {
        let labels = LABELS.map(|(key, value)| format!("\"{key}\":\"{value}\""));
        let head = format!(
            r#"{{"metadata":{{"name":"{}","generateName":"app-5d4f8c7b9-","namespace":"{}","uid":"{}","resourceVersion":"{}","creationTimestamp":"2026-11-21T02:54:13Z","labels":{{{}}},"annotations":{{"text":""#,
            self.name(),
            self.namespace(),
            self.uid(),
            self.version,
            labels.join(","),
        );
        let end = format!(
            r#""}}}},"spec":{{"containers":[],"restartPolicy":"Always","serviceAccountName":"default","nodeName":"{}","schedulerName":"default-scheduler"}},"status":{{"phase":"Running","podIP":"10.1.2.3","podIPs":[{{"ip":"10.1.2.3"}}]}}}}"#,
            self.node()
        );
        let text = "x".repeat(self.len.saturating_sub(head.len() + end.len()));
        [head, text, end].concat()
    }

    /// The protobuf message of the pod as a list item.
    pub(crate) fn protobuf(self) -> Vec<u8> {
        let mut spec = Vec::new();
        for (number, text) in [
            (3, "Always"),
            (8, "default"),
            (10, &self.node()),
            (19, "default-scheduler"),
        ] {
            put_bytes(&mut spec, number, text.as_bytes());
        }
        let mut ip = Vec::new();
        put_bytes(&mut ip, 1, b"10.1.2.3");
        let mut status = Vec::new();
        for (number, bytes) in [(1, b"Running".as_slice()), (6, b"10.1.2.3"), (12, &ip)] {
            put_bytes(&mut status, number, bytes);
        }
        let item = |text_len| {
            let metadata = self.metadata(text_len);
            let mut item = Vec::new();
            for (number, message) in [(1, &metadata), (2, &spec), (3, &status)] {
                put_bytes(&mut item, number, message);
            }
            item
        };
        // Longer length prefixes make it a few bytes longer than requested.
        item(self.len.saturating_sub(item(0).len()))
    }

    fn metadata(self, text_len: usize) -> Vec<u8> {
        let mut metadata = Vec::new();
        for (number, text) in [
            (1, &*self.name()),
            (2, "app-5d4f8c7b9-"),
            (3, &self.namespace()),
            (5, &self.uid()),
            (6, &self.version.to_string()),
        ] {
            put_bytes(&mut metadata, number, text.as_bytes());
        }
        for (key, value) in LABELS {
            put_bytes(&mut metadata, 11, &entry(key, value));
        }
        put_bytes(&mut metadata, 12, &entry("text", &"x".repeat(text_len)));
        metadata
    }
}

fn entry(key: &str, value: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, key.as_bytes());
    put_bytes(&mut entry, 2, value.as_bytes());
    entry
}
