//! A second process: this program again, started with the name of a part to play. It ends with its parent.

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::process::{Child as Process, Command, Stdio};
use std::str::FromStr;

/// What stands before the part's name on the command line.
const FLAG: &str = "--play";

/// The part that this process shall play, and its parameter.
pub(crate) fn part() -> Option<(String, usize)> {
    let mut words = std::env::args().skip_while(|word| word != FLAG).skip(1);
    Some((words.next()?, words.next()?.parse().ok()?))
}

/// A running second process.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    /// What it said when it was ready: one line.
    told: String,
}

impl Child {
    /// Starts one and waits for its first line.
    pub(crate) fn start(part: &str, parameter: usize) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([FLAG, part, &parameter.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut told = String::new();
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(stdout).read_line(&mut told)?;
        Ok(Self { process, told })
    }

    /// The words of its first line.
    pub(crate) fn told<T>(&self) -> io::Result<Vec<T>>
    where
        T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>>,
    {
        let words = self.told.split_whitespace();
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
        // One that has ended already needs no ending.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Tells the parent the words that it waits for, such as where to connect to.
pub(crate) fn tell<T: ToString>(words: &[T]) {
    let words: Vec<_> = words.iter().map(ToString::to_string).collect();
    println!("{}", words.join(" "));
}

/// Ends this process when its parent is gone, however that ended.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
}
