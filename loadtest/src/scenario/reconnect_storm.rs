//! `reconnect-storm`: watchers of many users connect at once to a gateway that has just been started, and then again. How many reviews
//! reach the API server, and what does an event cost compared with a gateway that checks no access?

mod server;

use anyhow::Result;
use clap::Parser;
use kube_fanout_testkit::apiserver::reviews::Review;
use tempfile::TempDir;

use super::population::Population;
use super::watch_run::WatchRun;
use super::watch_run::window::SERVER_PER_EVENT;
use super::{Scenario, steady};
use crate::cli::{GatewayFlags, WatchRunFlags};
use crate::process::raise_open_files;
use crate::results::Results;
use crate::runner::gateway::GatewayProcess;
use crate::target::user_token;
use server::{ReviewServer, WRITER};

/// The modes of authorization, each with the reviews that it sends. Streams are not authorized again during the measurement, because that
/// would add reviews.
const CHECKED: [(&str, [Review; 2]); 2] = [
    (
        "self-check",
        [Review::SelfSubject, Review::SelfSubjectAccess],
    ),
    ("review", [Review::Token, Review::SubjectAccess]),
];
const INTERVAL: &str = "--reauthorize-interval 1h";
/// What the modes are compared with.
const UNCHECKED: &str = "--auth none";

/// Watchers of many users connect at once to gateways that the scenario starts before an API server of its own, and then again: how many
/// reviews reach the API server, and what does an event cost?
#[derive(Debug, Clone, Parser)]
#[command(name = "reconnect-storm")]
pub struct ReconnectStorm {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Number of users that the watchers act as.
    #[arg(long, default_value_t = 500)]
    pub users: usize,
    #[command(flatten)]
    pub gateway: GatewayFlags,
}

impl Scenario for ReconnectStorm {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let server = ReviewServer::start(self.users, folder.path()).await?;
        let mut unchecked = start_gateway(self, &server, &folder, UNCHECKED).await?;
        play("none", self, &server, &unchecked, results).await?;
        unchecked.process.stop().await?;

        for (mode, reviews) in CHECKED {
            let auth = format!("--auth {mode} {INTERVAL}");
            let mut checked = start_gateway(self, &server, &folder, &auth).await?;
            server.running.reviews().reset();
            for name in [mode.to_owned(), format!("{mode}, again")] {
                play(&name, self, &server, &checked, results).await?;
                judge(self, &server, (&name, reviews), results);
            }
            checked.process.stop().await?;
        }
        results.ratios(SERVER_PER_EVENT, 0);
        Ok(())
    }
}

/// Starts a gateway before the server, with these flags of authorization.
async fn start_gateway(
    flags: &ReconnectStorm,
    server: &ReviewServer,
    folder: &TempDir,
    auth: &str,
) -> Result<GatewayProcess> {
    let mut words: Vec<String> = auth.split(' ').map(str::to_owned).collect();
    let kubeconfig = server.kubeconfig.display().to_string();
    words.extend(["--kubeconfig".to_owned(), kubeconfig]);
    GatewayProcess::start(&flags.gateway.program()?, folder.path(), &words).await
}

/// One storm and its measured window.
async fn play(
    name: &str,
    flags: &ReconnectStorm,
    server: &ReviewServer,
    gateway: &GatewayProcess,
    results: &mut Results,
) -> Result<()> {
    let mut setting: WatchRunFlags = flags.setting.clone();
    setting.server.target.clone_from(&gateway.url);
    setting.server.reference = Some(server.url.clone());
    setting.server.token = Some(user_token(0));
    setting.server.server_pid = Some(gateway.process.pid()?);
    setting.server.upstream_pid = None;
    raise_open_files(setting.watching.watchers * 2)?;
    let population = Population::of(setting.watching.watchers);
    let mut run = WatchRun::churning(name, &setting, population)?;
    run.swarm_config.target.users = flags.users;
    run.reference.token = Some(WRITER.to_owned());
    run.churn = Some(steady::writer(&setting.churning, &run.reference, run.path));
    run.run(results).await?;
    run.clean().await;
    Ok(())
}

/// Reports the reviews at the API server; more than one about the same subject is a fault.
fn judge(
    flags: &ReconnectStorm,
    server: &ReviewServer,
    (name, of_mode): (&str, [Review; 2]),
    results: &mut Results,
) {
    let reviews = server.running.reviews();
    let totals = reviews.totals();
    let counts = [
        totals.token + totals.self_subject,
        totals.subject_access + totals.self_subject_access,
    ];
    let rows = of_mode.into_iter().zip(counts);
    for ((review, total), what) in rows.zip(["token reviews", "access reviews"]) {
        results.figure(&format!("{what} so far"), total as f64);
        let subjects = reviews.subject_count(review);
        results.figure(&format!("{what}, subjects"), subjects as f64);
        let most = reviews.most(review);
        results.figure(&format!("{what} of one subject, most"), most as f64);
        if most > 1 {
            results.fault(format!("{name}: {most} {what} about one subject"));
        }
        // Fewer subjects than users prove nothing: the gateway has not asked.
        let users = flags.users.min(flags.setting.watching.watchers);
        if subjects < users {
            results.fault(format!("{name}: {what} about {subjects} of {users} users"));
        }
    }
}
