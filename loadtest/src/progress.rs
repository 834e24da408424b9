//! Progress for people who wait. A scenario says on standard error what it is doing; the runner, if that is a terminal, draws one line with the
//! run, the time, the longest time, and what the scenario said last.

use std::convert::Infallible;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Begins each line of a scenario that says what it is doing.
const PHASE: &str = "phase: ";
/// How often the line is drawn, and the scenario's log is read.
const REDRAW: Duration = Duration::from_millis(500);

/// Says what the scenario does from now on.
pub fn phase(text: &str) {
    // Nobody may be reading.
    let _ = writeln!(std::io::stderr(), "{PHASE}{text}");
}

/// The line of one run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Draws the line of a run that takes at most this long.
    pub fn start(title: &str, limit: Duration) -> Self {
        let style = ProgressStyle::with_template("{spinner} {prefix} {wide_msg}");
        let bar = ProgressBar::new_spinner()
            .with_prefix(title.to_owned())
            .with_message(line(Duration::ZERO, limit, None));
        if let Ok(style) = style {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(REDRAW);
        }
        Self { bar }
    }

    /// Whether nothing is drawn, because standard error is no terminal.
    pub fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }

    /// Draws what the scenario says in its log, for ever.
    pub async fn follow(&self, log: &Path, limit: Duration) -> Infallible {
        loop {
            tokio::time::sleep(REDRAW).await;
            if !self.is_hidden() {
                let text = std::fs::read(log).unwrap_or_default();
                let said = last_phase(&String::from_utf8_lossy(&text));
                self.bar.set_message(line(self.bar.elapsed(), limit, said));
            }
        }
    }

    /// Removes the line.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// The time, the longest time, and what is being done.
fn line(elapsed: Duration, limit: Duration, phase: Option<String>) -> String {
    let phase = phase.unwrap_or_else(|| "servers start".to_owned());
    let (elapsed, limit) = (elapsed.as_secs(), limit.as_secs());
    format!("{elapsed} s of at most {limit} s: {phase}")
}

fn last_phase(log: &str) -> Option<String> {
    let mut lines = log.lines().rev();
    lines.find_map(|line| line.strip_prefix(PHASE).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_the_scenario_said_last() {
        let log = "phase: nodes start\nother text\nphase: measuring for 45 s\nmore\n";
        let said = last_phase(log);
        let shown = line(Duration::from_secs(12), Duration::from_secs(600), said);
        assert_eq!(shown, "12 s of at most 600 s: measuring for 45 s");
        assert_eq!(last_phase("nothing"), None);
    }

    #[test]
    fn nothing_is_drawn_without_a_terminal() {
        // The tests' standard error is a pipe or a file in CI; by hand it may be a terminal.
        let progress = Progress::start("kubelets", Duration::from_secs(1));
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        assert_eq!(progress.is_hidden(), !is_terminal);
        progress.finish();
    }
}
