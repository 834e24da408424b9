//! The servers of one run: an API server, and gateways in front of it if wanted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::KeyPair;
use tokio::process::Command;

use super::plan::RunPlan;
use super::process::{ChildProcess, LOOK};
use super::real::RealServer;
use super::scenario_file::ServerKind;
use super::{Programs, arguments, gateway, guarded};
use crate::attack::certificates;
use crate::client::Client;
use crate::process::{Usage, allow_open_files};
use crate::results::mib;
use crate::target::{Target, user_token};

/// Time from a server's start to its first answer; it may create 150,000 objects first.
const READY_WAIT: Duration = Duration::from_secs(120);
/// The collection for the first request, if the scenario names none.
const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// The token of all clients and gateways, if the gateway checks them; and users with a token each besides.
const TOKEN: &str = "token-of-loadtest";
const USERS: usize = 4_096;
/// JSON logs, which contain the address.
const LOG: [&str; 2] = ["--log-format", "json"];

/// Servers in the order of their starts.
#[derive(Debug)]
pub struct Servers {
    programs: Programs,
    folder: PathBuf,
    real: Option<RealServer>,
    /// Every command line, in the order of the starts.
    pub commands: Vec<String>,
    /// Embedded API server and gateways; the last one is under test.
    processes: Vec<ChildProcess>,
    /// The scenario's process, which is stopped with the others.
    pub scenario: Option<ChildProcess>,
}

/// Address and credentials of a server.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub url: String,
    pub ca: Option<PathBuf>,
    /// File with a bearer token.
    pub token: Option<PathBuf>,
    pub pid: u32,
    /// Where a gateway has its metrics.
    pub admin_url: Option<String>,
}

impl Endpoint {
    fn target(&self) -> Result<Target> {
        let token = self
            .token
            .as_ref()
            .map(|file| format!("@{}", file.display()));
        Target::new(&self.url, token.as_deref(), self.ca.as_deref())
    }
}

impl Servers {
    pub fn new(programs: &Programs, folder: &Path) -> Self {
        Self {
            programs: programs.clone(),
            folder: folder.to_owned(),
            real: None,
            commands: Vec::new(),
            processes: Vec::new(),
            scenario: None,
        }
    }

    /// Starts the servers of a run; returns the API server, and the server under test if it is another one.
    /// Started servers stay until [`Self::stop`], also after an error.
    pub async fn start(&mut self, planned: &RunPlan) -> Result<(Endpoint, Option<Endpoint>)> {
        let api = match planned.server {
            ServerKind::Embedded
            | ServerKind::EmbeddedTls
            | ServerKind::Gateway
            | ServerKind::GatewayTls => self.embedded(planned).await?,
            ServerKind::Real | ServerKind::GatewayReal | ServerKind::GatewayRealPlain => {
                self.real_server().await?
            }
        };
        self.answers(&api, planned).await?;
        if self.real.is_some() {
            let version = Client::new(api.target()?).json("/version").await?;
            let version = version["gitVersion"].as_str().unwrap_or("unknown");
            let line = format!("real-apiserver.sh start  # {version} at {}", api.url);
            self.commands.push(line);
        }
        if !planned.server.has_gateway() {
            return Ok((api, None));
        }
        let mut last = api.clone();
        for tier in 1..=planned.tiers {
            last = self.gateway(planned, tier, &last).await?;
            self.answers(&last, planned).await?;
        }
        Ok((api, Some(last)))
    }

    pub fn play(&mut self, arguments: &[String]) -> Result<&mut ChildProcess> {
        let program = self.programs.loadtest.clone();
        let scenario = self.spawn("scenario", &program, arguments)?;
        Ok(self.scenario.insert(scenario))
    }

    /// Starts a program that ends with this one. The recorded command line names programs without the folders of this machine.
    fn spawn(&mut self, name: &str, program: &Path, arguments: &[String]) -> Result<ChildProcess> {
        let base = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let gateway = self.programs.gateway.display().to_string();
        let words = arguments.iter().map(|word| match *word == gateway {
            true => base(&self.programs.gateway),
            false => word.clone(),
        });
        let line: Vec<String> = [base(program)].into_iter().chain(words).collect();
        self.commands.push(arguments::join(&line));
        let mut command = Command::new(&self.programs.loadtest);
        command.args(guarded::arguments(program, arguments));
        ChildProcess::start(name, command, &self.folder)
    }

    /// The file for the scenario's figures.
    pub fn json(&self) -> PathBuf {
        self.folder.join("figures.json")
    }

    async fn embedded(&mut self, planned: &RunPlan) -> Result<Endpoint> {
        let mut arguments = arguments::split("apiserver --listen 127.0.0.1:0");
        arguments.extend(LOG.map(str::to_owned));
        arguments.extend(planned.apiserver.iter().cloned());
        let token = match is_checked(planned) {
            true => Some(self.made_tokens(&mut arguments)?),
            false => None,
        };
        let certificate = match planned.server {
            ServerKind::EmbeddedTls => Some(self.made_certificate()?),
            _ => None,
        };
        if let Some(made) = &certificate {
            arguments.extend(made.flags());
        }
        let program = self.programs.gateway.clone();
        let (address, pid) = self.launch("apiserver", &program, &arguments).await?;
        Ok(Endpoint {
            url: url(&address, certificate.is_some()),
            ca: certificate.map(|made| made.ca),
            token,
            pid,
            admin_url: None,
        })
    }

    async fn real_server(&mut self) -> Result<Endpoint> {
        let real = self
            .real
            .insert(RealServer::new(&self.programs.real, &self.folder)?);
        real.start().await?;
        Ok(Endpoint {
            url: real.url(),
            ca: Some(real.credential("ca.crt")),
            token: Some(real.credential("admin.token")),
            pid: real.pid()?,
            admin_url: None,
        })
    }

    /// The first gateway's upstream is the API server, that of each further one the gateway before it. All but the last serve plain HTTP.
    /// Clients are checked as in a deployment, unless the scenario says otherwise.
    async fn gateway(
        &mut self,
        planned: &RunPlan,
        tier: usize,
        upstream: &Endpoint,
    ) -> Result<Endpoint> {
        let mut arguments =
            arguments::split("serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0");
        arguments.extend(LOG.map(str::to_owned));
        match (&self.real, tier) {
            (Some(real), 1) => arguments.extend([
                "--kubeconfig".to_owned(),
                real.kubeconfig().display().to_string(),
            ]),
            _ if upstream.token.is_some() => {
                let file = self.folder.join(format!("kubeconfig-{tier}"));
                let text = gateway::kubeconfig(&upstream.url, None, Some(TOKEN));
                std::fs::write(&file, text)?;
                arguments.extend(["--kubeconfig".to_owned(), file.display().to_string()]);
            }
            _ => arguments.extend(["--upstream".to_owned(), upstream.url.clone()]),
        }
        let last = tier == planned.tiers;
        let certificate = match planned.server {
            ServerKind::GatewayTls if last => Some(self.made_certificate()?),
            ServerKind::GatewayReal if last => self.real.as_ref().map(|real| Certificate {
                ca: real.credential("ca.crt"),
                chain: real.credential("server.crt"),
                key: real.credential("server.key"),
            }),
            _ => None,
        };
        match &certificate {
            None => arguments.push("--plain-http".to_owned()),
            Some(made) => arguments.extend(made.flags()),
        }
        arguments::add(&mut arguments, &planned.gateway);
        if certificate.is_some() && is_checked(planned) {
            let authority = self.made_authority()?.display().to_string();
            arguments.extend(["--client-ca-file".to_owned(), authority]);
        }
        let (program, arguments) = match planned.gateway_files {
            None => (self.programs.gateway.clone(), arguments),
            Some(files) => {
                allow_open_files(files.into())?;
                with_files(files, &self.programs.gateway, arguments)
            }
        };
        let name = format!("gateway-{tier}");
        let (address, pid) = self.launch(&name, &program, &arguments).await?;
        Ok(Endpoint {
            url: url(&address, certificate.is_some()),
            ca: certificate.map(|made| made.ca),
            token: upstream.token.clone(),
            pid,
            admin_url: self.admin_url()?,
        })
    }

    /// The metrics' address of the process that was started last.
    fn admin_url(&self) -> Result<Option<String>> {
        let admin = self.processes.last().map(|last| last.logged("admin"));
        let admin = admin.transpose()?.flatten();
        Ok(admin.map(|admin| format!("http://{admin}")))
    }

    async fn launch(
        &mut self,
        name: &str,
        program: &Path,
        arguments: &[String],
    ) -> Result<(String, u32)> {
        let started = self.spawn(name, program, arguments)?;
        self.processes.push(started);
        let process = self
            .processes
            .last_mut()
            .context("invariant: just pushed")?;
        let address = process
            .address(READY_WAIT)
            .await
            .with_context(|| name.to_owned())?;
        Ok((address.to_string(), process.pid()?))
    }

    /// Waits until a server answers a list of the collection.
    async fn answers(&mut self, reach: &Endpoint, planned: &RunPlan) -> Result<()> {
        let target = reach.target()?;
        let path = arguments::value(&planned.play, "--path").unwrap_or(PATH);
        let path = format!("{path}?limit=1");
        let asking = async {
            loop {
                let Err(error) = Client::new(target.clone()).json(&path).await else {
                    return Ok(());
                };
                for process in &mut self.processes {
                    process.alive().with_context(|| error.to_string())?;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let answered = tokio::time::timeout(READY_WAIT, asking).await;
        answered
            .unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {READY_WAIT:?}")))
            .with_context(|| reach.url.clone())
    }

    /// A self-signed certificate for 127.0.0.1.
    fn made_certificate(&self) -> Result<Certificate> {
        let made =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let (chain, key) = (
            self.folder.join("gateway.crt"),
            self.folder.join("gateway.key"),
        );
        std::fs::write(&chain, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Certificate {
            ca: chain.clone(),
            chain,
            key,
        })
    }

    /// Makes an API server know tokens: that of all clients, and those of users. Returns the file with the first.
    fn made_tokens(&self, arguments: &mut Vec<String>) -> Result<PathBuf> {
        let (file, users) = (self.folder.join("token"), self.folder.join("tokens.csv"));
        std::fs::write(&file, TOKEN)?;
        let of_user = |number| format!("{},user-{number},{number}\n", user_token(number));
        let lines: String = (0..USERS).map(of_user).collect();
        std::fs::write(&users, format!("{lines}{TOKEN},loadtest,loadtest\n"))?;
        let flags = ["--authorization-mode", "AlwaysAllow", "--token-auth-file"];
        arguments.extend(flags.map(str::to_owned));
        arguments.push(users.display().to_string());
        Ok(file)
    }

    /// The file of an authority of clients, of which no certificate is ever used.
    fn made_authority(&self) -> Result<PathBuf> {
        let authority = certificates::authority().self_signed(&KeyPair::generate()?)?;
        let file = self.folder.join("clients.crt");
        std::fs::write(&file, authority.pem())?;
        Ok(file)
    }

    /// Processes that have ended without success.
    pub fn failures(&mut self) -> Vec<String> {
        let processes = self.processes.iter_mut();
        processes.filter_map(ChildProcess::failure).collect()
    }

    /// CPU and memory of the server under test, and of the API server behind it, since their starts. Empty if one has ended.
    pub fn usage(&self) -> BTreeMap<String, f64> {
        let real = self.real.as_ref().and_then(|real| real.pid().ok());
        let processes = self.processes.iter().map(|process| process.pid().ok());
        let Some(processes) = processes.collect::<Option<Vec<u32>>>() else {
            return BTreeMap::new();
        };
        let pids: Vec<u32> = real.into_iter().chain(processes).collect();
        let mut figures = BTreeMap::new();
        let mut put = |whose: &str, pid: u32| {
            if let Ok(usage) = Usage::of(pid) {
                figures.insert(
                    format!("whole run: {whose} CPU, s"),
                    usage.cpu.as_secs_f64(),
                );
                figures.insert(
                    format!("whole run: {whose} RSS at the end, MiB"),
                    mib(usage.rss),
                );
                figures.insert(
                    format!("whole run: {whose} peak RSS, MiB"),
                    mib(usage.peak_rss),
                );
            }
        };
        if let Some(last) = pids.last() {
            put("server", *last);
        }
        if let [first, _, ..] = pids.as_slice() {
            put("upstream", *first);
        }
        figures
    }

    /// The last lines of all logs, for a failed run.
    pub fn last_lines(&self) -> String {
        let mut text = String::new();
        if let Some(said) = self
            .real
            .as_ref()
            .and_then(|real| std::fs::read_to_string(real.log()).ok())
        {
            text.push_str(&format!("--- real-apiserver.sh\n{said}"));
        }
        for process in self.processes.iter().chain(&self.scenario) {
            text.push_str(&format!("--- {}\n{}\n", process.name, process.last_lines()));
        }
        text
    }

    /// Stops all processes, the scenario first and the API server last.
    /// Returns the first error; the other processes are stopped all the same.
    pub async fn stop(mut self) -> Result<()> {
        let mut result = Ok(());
        for process in self
            .scenario
            .iter_mut()
            .chain(self.processes.iter_mut().rev())
        {
            result = result.and(process.stop().await);
        }
        match &mut self.real {
            Some(real) => result.and(real.stop().await),
            None => result,
        }
    }
}

/// Whether the gateways of a run check clients.
fn is_checked(planned: &RunPlan) -> bool {
    arguments::value(&planned.gateway, "--auth") != Some("none")
}

/// Files of a server's certificate.
struct Certificate {
    ca: PathBuf,
    chain: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// The flags that name it.
    fn flags(&self) -> [String; 4] {
        let [cert, key] = ["--tls-cert", "--tls-key"].map(str::to_owned);
        let [chain_file, key_file] =
            [&self.chain, &self.key].map(|file| file.display().to_string());
        [cert, chain_file, key, key_file]
    }
}

/// The URL of an address.
fn url(address: &str, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// The shell command that starts a program with a limit of open files. The shell replaces itself by the program, so the process id stays
/// the same.
fn with_files(files: u32, program: &Path, arguments: Vec<String>) -> (PathBuf, Vec<String>) {
    let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
    let before = ["-c".to_owned(), limited, program.display().to_string()];
    (
        PathBuf::from("sh"),
        before.into_iter().chain(arguments).collect(),
    )
}
