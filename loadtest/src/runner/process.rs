//! A process of a run: its output goes to a file, it is asked to end, and killed by its id if it does not.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// How often conditions are polled.
pub const LOOK: Duration = Duration::from_millis(50);
/// From SIGTERM to SIGKILL: longer than a gateway's drain.
const END_WAIT: Duration = Duration::from_secs(30);
/// Longest time for a command that answers at once.
const OUTPUT_WAIT: Duration = Duration::from_secs(10);
/// Lines of a log that are shown when a run fails.
const LAST_LINES: usize = 12;

#[derive(Debug)]
pub struct ChildProcess {
    pub name: String,
    log: PathBuf,
    child: Child,
}

impl ChildProcess {
    /// Starts a command; its output goes to a file in `folder` with the process's name.
    pub fn start(name: &str, mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            // An own process group: a terminal's Ctrl-C goes to the runner only, which stops all in order, with the processes that they
            // have started.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| name.to_owned())?;
        Ok(Self {
            name: name.to_owned(),
            log,
            child,
        })
    }

    pub fn pid(&self) -> Result<u32> {
        self.child
            .id()
            .with_context(|| format!("{} has ended", self.name))
    }

    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} has ended: {status}", self.name),
        }
    }

    /// The exit status, if it has ended without success.
    pub fn failure(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                Some(format!("{} has ended: {status}", self.name))
            }
            Ok(_) => None,
            Err(error) => Some(format!("{}: {error}", self.name)),
        }
    }

    /// The address that it logs as serving, from a JSON line.
    pub async fn address(&mut self, wait: Duration) -> Result<SocketAddr> {
        let said = async {
            loop {
                if let Some(address) = self.logged("address")? {
                    return Ok(address);
                }
                self.alive()?;
                tokio::time::sleep(LOOK).await;
            }
        };
        let said = tokio::time::timeout(wait, said).await;
        said.unwrap_or_else(|_| bail!("no address within {wait:?}"))
    }

    /// The first address that its log names so far under this key.
    pub fn logged(&self, key: &str) -> Result<Option<SocketAddr>> {
        Ok(address_in(&std::fs::read_to_string(&self.log)?, key))
    }

    /// Waits for its end. After an error it still runs.
    pub async fn wait_for_end(&mut self, wait: Duration) -> Result<ExitStatus> {
        let status = tokio::time::timeout(wait, self.child.wait()).await;
        Ok(status.with_context(|| format!("{} has not ended after {wait:?}", self.name))??)
    }

    /// Asks its process group to end, and kills the group if it does not.
    pub async fn stop(&mut self) -> Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        // The id is none after the process was waited for; until then it is its own, ended or not.
        let Some(group) = id.and_then(Pid::from_raw) else {
            return Ok(());
        };
        let _ = kill_process_group(group, Signal::TERM);
        if self.wait_for_end(END_WAIT).await.is_err() {
            eprintln!("{} still ran {END_WAIT:?} after SIGTERM: killed", self.name);
            kill_process_group(group, Signal::KILL)?;
            self.child.wait().await?;
        }
        Ok(())
    }

    /// Kills its process group, which has no time to end anything in order.
    pub async fn kill(&mut self) -> Result<()> {
        let id = i32::try_from(self.pid()?).ok().and_then(Pid::from_raw);
        kill_process_group(id.context("invariant: a process id")?, Signal::KILL)?;
        self.child.wait().await?;
        Ok(())
    }

    /// The last lines of its output.
    pub fn last_lines(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&text))
    }
}

/// The output of a command.
pub async fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(OUTPUT_WAIT, output)
        .await
        .context("the command does not end")??;
    ensure!(output.status.success(), "{}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// The first value of `key` in lines such as `{"message":"serving","address":"127.0.0.1:8001"}`.
fn address_in(log: &str, key: &str) -> Option<SocketAddr> {
    log.lines().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line[key].as_str()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_stands_in_a_line_of_the_log() {
        let log = "not JSON\n{\"message\":\"warned\"}\n{\"message\":\"serving\",\"address\":\"127.0.0.1:39897\"}\n";
        assert_eq!(
            address_in(log, "address"),
            Some("127.0.0.1:39897".parse().unwrap())
        );
        assert_eq!(address_in(log, "admin"), None);
        // A line that is not complete yet.
        assert_eq!(address_in(&log[..log.len() - 10], "address"), None);
    }

    fn shell(script: &str) -> ChildProcess {
        let name = format!("kube-fanout-runner-{}-{}", std::process::id(), script.len());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        ChildProcess::start(&name, command, &std::env::temp_dir()).unwrap()
    }

    #[tokio::test]
    async fn a_process_that_ends_early_is_noticed() {
        let mut process = shell("echo going; exit 3");
        let error = process.address(OUTPUT_WAIT).await.unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
        assert_eq!(process.last_lines(), "going");
        let _ = std::fs::remove_file(&process.log);
    }

    /// Polls until there is a value.
    async fn seen<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let looking = async {
            loop {
                match look() {
                    Some(found) => return found,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        tokio::time::timeout(END_WAIT, looking).await.unwrap()
    }

    #[tokio::test]
    async fn an_end_that_is_none_of_success_is_a_failure() {
        for (script, failure) in [
            ("exit 5", Some("exit status: 5")),
            ("kill -9 $$", Some("signal: 9")),
            ("exit  0", None),
        ] {
            let mut process = shell(script);
            seen(|| process.alive().err()).await;
            let found = process.failure();
            match failure {
                Some(failure) => assert!(found.unwrap().contains(failure), "{script}"),
                None => assert_eq!(found, None, "{script}"),
            }
            let _ = std::fs::remove_file(&process.log);
        }
    }

    #[tokio::test]
    async fn a_stopped_process_is_gone_with_what_it_started() {
        let mut process = shell("sleep 300 & echo $!; wait");
        let child: u32 = seen(|| process.last_lines().parse().ok()).await;
        let pid = process.pid().unwrap();
        process.stop().await.unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        // It stays a zombie if nobody waits for it.
        seen(|| {
            let state = std::fs::read_to_string(format!("/proc/{child}/stat"));
            let runs = state.is_ok_and(|state| !state.contains(") Z "));
            (!runs).then_some(())
        })
        .await;
        let _ = std::fs::remove_file(&process.log);
    }
}
