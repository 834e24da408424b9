//! Memory becomes short and is back: the steps come in their order, open watches continue, and everything returns.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::admission::ResidentMemory;
use crate::metrics::{Label, PressureStep};
use strum::VariantArray;

const MAX: usize = 1 << 30;
/// What the process seems to have in memory.
static PLANTED: AtomicUsize = AtomicUsize::new(0);

#[expect(clippy::unnecessary_wraps, reason = "the hook may have no answer")]
fn planted() -> Option<ResidentMemory> {
    let total = PLANTED.load(Ordering::Relaxed);
    Some(ResidentMemory {
        total,
        files: total,
        allocated: 0,
    })
}

fn plant(percent: usize) {
    PLANTED.store(MAX / 100 * percent, Ordering::Relaxed);
}

impl Stage {
    async fn pressure_is(&self, level: usize) {
        self.wait_for_metric("memory_pressure ", &level.to_string())
            .await;
    }

    async fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        for step in PressureStep::VARIANTS {
            let series = format!("memory_pressure_steps_total{{step=\"{}\"}}", step.as_str());
            steps.push(self.metric(&series).await);
        }
        steps
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_is_short_is_given_back_in_steps_and_everything_returns() {
    let hooks = Hooks {
        resident: planted,
        ..Hooks::default()
    };
    let stage = Stage::with(hooks, |settings| settings.admission.memory_max = MAX).await;
    let target = format!("{CONFIGMAPS}?watch=1");
    let mut early = stage.watch(&target).await;
    stage.create(CONFIGMAPS, "first").await;
    early.shows("first").await;
    assert_eq!(stage.steps().await, ["0"; 4]);

    plant(81);
    stage.pressure_is(1).await;
    assert_eq!(stage.steps().await, ["1", "0", "0", "0"]);
    plant(89);
    stage.pressure_is(2).await;
    assert_eq!(stage.steps().await, ["1", "1", "0", "0"]);
    stage.create(CONFIGMAPS, "second").await;
    early.shows("second").await;
    let mut late = stage.watch(&target).await;

    // A new cache would take what the others need. Its requests are forwarded.
    let services = stage
        .get(stage.address, "/api/v1/namespaces/default/services")
        .await;
    assert_eq!(services.status(), 200);
    let given_up = "cache_given_up_total{encoding=\"json\",group=\"\",reason=\"memory\",resource=\"services\",version=\"v1\"}";
    stage.wait_for_metric(given_up, "1").await;

    plant(95);
    stage.pressure_is(3).await;
    let refused = stage.get(stage.address, &target).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let list = stage.get(stage.address, CONFIGMAPS).await;
    assert_eq!(list.status(), 200, "one list may always run");
    let page = list.into_body().collect().await.unwrap().to_bytes();
    let page: Value = serde_json::from_slice(&page).unwrap();
    let version = page["metadata"]["resourceVersion"].as_str().unwrap();
    let mut resumed = stage
        .watch(&format!("{target}&resourceVersion={version}"))
        .await;
    let ready = stage.get(stage.admin, "/readyz?verbose").await;
    assert_eq!(ready.status(), 200);
    let ready = ready.into_body().collect().await.unwrap().to_bytes();
    let ready = String::from_utf8(ready.to_vec()).unwrap();
    assert!(ready.contains("[+]memory ok: memory is short: "), "{ready}");
    plant(101);
    stage.pressure_is(4).await;
    assert_eq!(stage.steps().await, ["1"; 4]);
    stage.create(CONFIGMAPS, "third").await;
    for watch in [&mut early, &mut late, &mut resumed] {
        watch.shows("third").await;
    }

    plant(10);
    stage.pressure_is(0).await;
    assert_eq!(stage.steps().await, ["1"; 4]);
    let mut again = stage.watch(&target).await;
    stage.create(CONFIGMAPS, "last").await;
    for watch in [&mut early, &mut late, &mut resumed, &mut again] {
        watch.shows("last").await;
    }
    drop((early, late, resumed, again));
    stage.end().await;
}
