//! A child process: this program again, started with the name of the role it plays. It ends with its parent.

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::{Child as Process, Command, Stdio};
use std::str::FromStr;

/// Precedes the role's name on the command line.
const FLAG: &str = "--play";

/// The role of this process and its parameter; `None` in the parent process.
pub(crate) fn part() -> Option<(String, usize)> {
    let mut words = std::env::args().skip_while(|word| word != FLAG).skip(1);
    Some((words.next()?, words.next()?.parse().ok()?))
}

/// A running child process.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    /// The line that the child printed when it was ready.
    first_line: String,
}

impl Child {
    /// Starts a child and waits for its first line.
    pub(crate) fn start(part: &str, parameter: usize) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([FLAG, part, &parameter.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut first_line = String::new();
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut first_line)?;
        Ok(Self {
            process,
            first_line,
        })
    }

    /// The words of the child's first line.
    pub(crate) fn words<T>(&self) -> io::Result<Vec<T>>
    where
        T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>>,
    {
        let words = self.first_line.split_whitespace();
        words
            .map(|word| word.parse().map_err(io::Error::other))
            .collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Killing a child that has already ended fails, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reports the words that the parent waits for, such as the address to connect to.
pub(crate) fn report<T: ToString>(words: &[T]) {
    let words: Vec<_> = words.iter().map(ToString::to_string).collect();
    println!("{}", words.join(" "));
}

/// Ends this process when its parent is gone, for whatever reason.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
}
