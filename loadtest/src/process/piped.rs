//! A child process that exchanges lines with this one, and that ends when its input does, so also when this program is killed.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A child process, killed when dropped.
#[derive(Debug)]
pub struct PipedChild {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl PipedChild {
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().context("invariant: stdin is piped")?;
        let output = child.stdout.take().context("invariant: stdout is piped")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    /// Its process id, until it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends it a line.
    pub async fn send_line(&mut self, line: &str) -> Result<()> {
        self.input.write_all(line.as_bytes()).await?;
        self.input.write_all(b"\n").await?;
        Ok(self.input.flush().await?)
    }

    /// Its next line; none when it has ended. Can be cancelled without loss.
    pub async fn line(&mut self) -> Result<Option<String>> {
        Ok(self.output.next_line().await?)
    }

    /// Ends its input and waits for its end; returns the lines that it wrote in the meantime.
    pub async fn end(self, wait: Duration) -> Result<Vec<String>> {
        let Self {
            mut child,
            input,
            mut output,
        } = self;
        drop(input);
        let ending = async {
            let mut lines = Vec::new();
            // A child whose output is full does not end.
            while let Some(line) = output.next_line().await? {
                lines.push(line);
            }
            Ok::<_, anyhow::Error>((lines, child.wait().await?))
        };
        let ended = tokio::time::timeout(wait, ending).await;
        let (lines, status) = ended.with_context(|| format!("does not end within {wait:?}"))??;
        ensure!(status.success(), "{status}");
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    //! All lines of a child are read, and a failure is an error.

    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> PipedChild {
        PipedChild::spawn(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[tokio::test]
    async fn a_child_is_heard_to_its_end() {
        let mut child = shell("read line; echo got $line; cat; echo last");
        child.send_line("word").await.unwrap();
        assert_eq!(child.line().await.unwrap().unwrap(), "got word");
        assert_eq!(child.end(WAIT).await.unwrap(), ["last"]);
    }

    #[tokio::test]
    async fn a_child_that_fails_or_does_not_end_is_an_error() {
        let failed = shell("cat; exit 3").end(WAIT).await.unwrap_err();
        assert!(failed.to_string().contains('3'), "{failed}");
        let stays = shell("exec sleep 60").end(Duration::from_millis(50)).await;
        assert!(stays.unwrap_err().to_string().contains("does not end"));
    }
}
