//! Tests of rules that change while watches are open.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::*;
use crate::config::{Answerer, KnownUser, ReadSubject, ServingRules};
use crate::metrics::Metrics;
use crate::resource::Gvr;

struct Stage {
    control: ServingControl,
    metrics: Metrics,
    pods: Gvr,
    _tasks: JoinSet<()>,
}

impl Stage {
    fn new(configured: &str) -> Self {
        let metrics = Metrics::new().unwrap();
        let control = ServingControl::new(rules(configured), metrics.serving());
        let mut tasks = JoinSet::new();
        let running = control.clone();
        tasks.spawn(async move {
            running.run().await;
        });
        Self {
            control,
            metrics,
            pods: Gvr::new("", "v1", "pods"),
            _tasks: tasks,
        }
    }

    fn subject(&self) -> ReadSubject<'_> {
        ReadSubject {
            user: KnownUser::Nobody,
            agent: "",
            resource: &self.pods,
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }

    fn is_served(&self) -> bool {
        matches!(
            self.control.would_answer(&self.subject()),
            Answerer::Memory(_)
        )
    }

    fn series(&self) -> String {
        let page = self.metrics.page().unwrap();
        let lines = page
            .lines()
            .filter(|line| line.contains("serving_rule_requests_total{"));
        let lines = lines.map(|line| line.replace("kube_fanout_serving_rule_requests_total", ""));
        lines.collect::<Vec<_>>().join(" ")
    }
}

fn rules(text: &str) -> ServingRules {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_override_ends_by_itself_and_outlives_the_file() {
    let stage = Stage::new("rules");
    stage
        .control
        .change(rules("passthrough"), Duration::from_secs(60), "jane");
    assert!(!stage.is_served());
    sleep(Duration::from_secs(30)).await;
    stage.control.configure(rules("switchOver: 5s"), "the file");
    assert!(
        !stage.is_served(),
        "the file does not end what an operator has set"
    );
    sleep(Duration::from_secs(31)).await;
    assert!(stage.is_served());
    let state = stage.control.state();
    assert_eq!(
        (state.current(), &state.temporary),
        (&rules("switchOver: 5s"), &None)
    );

    stage
        .control
        .change(rules("passthrough"), Duration::from_secs(60), "jane");
    stage.control.reset("jane");
    assert!(stage.is_served());
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A thousand open watches, each armed, and how often they are woken.
fn watched(stage: &Stage) -> (Vec<SideHold>, Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let hold = |_| {
        let mut hold = SideHold::new(stage.control.clone(), SubjectUser::Nobody);
        hold.arm(&waker);
        hold
    };
    let holds = (0..1_000).map(hold).collect();
    (holds, woken, waker)
}

#[tokio::test(start_paused = true)]
async fn a_change_reaches_every_watch_once_spread_over_the_switch_over() {
    let stage = Stage::new("switchOver: 64s");
    let (mut holds, woken, waker) = watched(&stage);
    let began = Instant::now();
    let passthrough = "{mode: passthrough, switchOver: 64s}";
    stage.control.configure(rules(passthrough), "the file");
    sleep(Duration::from_secs(32)).await;
    let half = woken.0.load(Ordering::SeqCst);
    assert!(
        (300..700).contains(&half),
        "{half} of 1,000 after half the time"
    );
    sleep(Duration::from_secs(32)).await;
    assert_eq!(woken.0.load(Ordering::SeqCst), 1_000);
    assert!(began.elapsed() <= Duration::from_secs(65));
    for hold in &mut holds {
        assert!(hold.is_due());
        hold.renew();
        hold.arm(&waker);
        assert_eq!(
            hold.leaves(&stage.subject(), false),
            Some(Duration::from_secs(1)),
            "everything is forwarded, so nobody stays"
        );
    }
    // Back before the turn of the others: those who have been told are told again.
    stage
        .control
        .configure(rules("switchOver: 64s"), "the file");
    sleep(Duration::from_secs(65)).await;
    assert_eq!(woken.0.load(Ordering::SeqCst), 2_000);
    assert!(
        holds
            .iter()
            .all(|hold| hold.leaves(&stage.subject(), true).is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_bookmarks_stays_unless_everything_is_forwarded() {
    let stage = Stage::new("rules: [{percent: 0}]");
    let hold = SideHold::new(stage.control.clone(), SubjectUser::Nobody);
    assert!(hold.leaves(&stage.subject(), true).is_some());
    assert!(hold.leaves(&stage.subject(), false).is_none());
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_rule_and_old_rules_have_no_series() {
    let stage = Stage::new("rules: [{name: pods, resources: [pods], percent: 0}]");
    let _ = stage.control.answerer(&stage.subject());
    let expected = r#"{answerer="memory",rule="pods"} 0 {answerer="upstream",rule="pods"} 1"#;
    assert_eq!(stage.series(), expected);
    assert!(stage.control.has_forwarded_within(Duration::from_secs(1)));
    stage
        .control
        .configure(rules("rules: [{name: all}]"), "the file");
    let _ = stage.control.answerer(&stage.subject());
    let expected = r#"{answerer="memory",rule="all"} 1 {answerer="upstream",rule="all"} 0"#;
    assert_eq!(stage.series(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_override_that_is_renewed_reaches_every_watch_all_the_same() {
    let stage = Stage::new("switchOver: 64s");
    let (_holds, woken, _) = watched(&stage);
    for round in 0..14 {
        // Each third time the rules are others indeed.
        let rest = if round % 3 == 0 {
            ""
        } else {
            ", rules: [{percent: 0}]"
        };
        let passthrough = format!("{{mode: passthrough, switchOver: 64s{rest}}}");
        stage
            .control
            .change(rules(&passthrough), Duration::from_secs(60), "cron");
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(woken.0.load(Ordering::SeqCst), 1_000);
}
