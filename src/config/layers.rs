//! Lays flags over environment over file, and has the command line's own parser read the sum.
//!
//! Every layer is brought into the form of flags, so a setting has one definition, one syntax and one check wherever
//! it is written. Each value of a lower layer is first parsed alone, so that an error names the variable or the line.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};

use super::file::{self, FileError};
use crate::cli::{self, Flags};

/// Flags, environment and file do not make settings.
#[derive(Debug, thiserror::Error)]
pub enum FlagsError {
    /// The command line is wrong, or asks for help or the version.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// A variable or a line of the file holds no such value.
    #[error("{origin}: {message}")]
    Value {
        /// `KUBE_FANOUT_LISTEN`, or `config.yaml:3: listen`.
        origin: String,
        /// What is wrong with it.
        message: String,
    },
    /// A key that names no flag.
    #[error("{origin}: unknown key")]
    UnknownKey {
        /// `config.yaml:3: lisen`.
        origin: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A value that a lower layer gives to a flag.
#[derive(Clone, Debug)]
struct LayerValue {
    /// The flag's name without dashes.
    flag: String,
    value: String,
    origin: String,
}

/// See [`super::read`].
pub(super) fn read(
    arguments: Vec<OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Flags, FlagsError> {
    let typed = cli::command().try_get_matches_from(&arguments)?;
    let (command, matches) = leaf(&cli::command(), &typed);
    let names: Vec<String> = flag_names(&command);

    let mut settled = LayerDecisions::default();
    settled.take(
        names
            .iter()
            .filter(|name| is_typed(matches, name))
            .map(|name| (name.as_str(), is_denial(matches, name))),
    );
    settled.lay(environment(&names, variable)?);
    if let Some(path) = file_path(matches, &settled) {
        settled.lay(from_file(&path, &command)?);
    }
    settled.parse_over(arguments)
}

/// The command that was asked for, with what was typed for it.
fn leaf<'a>(root: &clap::Command, typed: &'a ArgMatches) -> (clap::Command, &'a ArgMatches) {
    let (mut command, mut matches) = (root, typed);
    while let Some((name, below)) = matches.subcommand() {
        let Some(next) = command.find_subcommand(name) else {
            break;
        };
        (command, matches) = (next, below);
    }
    (command.clone(), matches)
}

fn flag_names(command: &clap::Command) -> Vec<String> {
    command
        .get_arguments()
        .filter_map(|flag| flag.get_long())
        .filter(|name| !matches!(*name, "help" | "version"))
        .map(str::to_owned)
        .collect()
}

fn id_of(name: &str) -> String {
    name.replace('-', "_")
}

fn is_typed(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(&id_of(name)) == Some(ValueSource::CommandLine)
}

/// Whether a switch was typed as `=false`.
fn is_denial(matches: &ArgMatches, name: &str) -> bool {
    matches!(matches.try_get_one::<bool>(&id_of(name)), Ok(Some(false)))
}

/// The environment's values. Variables that name no flag are not ours to judge: Kubernetes itself sets
/// `KUBE_FANOUT_PORT` and others beside a Service of that name.
fn environment(
    names: &[String],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<LayerValue>, FlagsError> {
    let mut given = Vec::new();
    for name in names {
        let origin = variable_of(name);
        let Some(value) = variable(&origin) else {
            continue;
        };
        let value = value.into_string().map_err(|_| FlagsError::Value {
            origin: origin.clone(),
            message: "not UTF-8".to_owned(),
        })?;
        given.push(LayerValue {
            flag: name.clone(),
            value,
            origin,
        });
    }
    Ok(given)
}

/// `tls-cert` is `KUBE_FANOUT_TLS_CERT` in the environment.
fn variable_of(name: &str) -> String {
    format!("KUBE_FANOUT_{}", id_of(name).to_uppercase())
}

/// `tls-cert` is `tlsCert` in a file.
fn key_of(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for (place, word) in name.split('-').enumerate() {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if place > 0 => key.push(first.to_ascii_uppercase()),
            Some(first) => key.push(first),
            None => {}
        }
        key.push_str(letters.as_str());
    }
    key
}

fn file_path(matches: &ArgMatches, settled: &LayerDecisions) -> Option<PathBuf> {
    if let Ok(Some(path)) = matches.try_get_one::<PathBuf>("config") {
        return Some(path.clone());
    }
    settled
        .given
        .iter()
        .find(|given| given.flag == "config")
        .map(|given| PathBuf::from(&given.value))
}

fn from_file(path: &Path, command: &clap::Command) -> Result<Vec<LayerValue>, FlagsError> {
    let names = flag_names(command);
    let mut given = Vec::new();
    for entry in file::read(path)? {
        let origin = format!("{}:{}: {}", path.display(), entry.line, entry.key);
        let flag = names
            .iter()
            .find(|name| *name != "config" && key_of(name) == entry.key);
        let Some(flag) = flag else {
            return Err(FlagsError::UnknownKey { origin });
        };
        given.push(LayerValue {
            flag: flag.clone(),
            value: entry.words.join(delimiter(command, flag)),
            origin,
        });
    }
    Ok(given)
}

/// What joins the words of a list in a flag's value.
fn delimiter(command: &clap::Command, flag: &str) -> &'static str {
    let flag = command
        .get_arguments()
        .find(|one| one.get_long() == Some(flag));
    match flag.and_then(clap::Arg::get_value_delimiter) {
        Some(';') => ";",
        _ => ",",
    }
}

/// What the layers so far have decided.
#[derive(Debug, Default)]
struct LayerDecisions {
    /// Flags that lower layers have no say in any more.
    taken: BTreeSet<String>,
    given: Vec<LayerValue>,
}

impl LayerDecisions {
    /// Takes the flags of one layer, with whether each is a switch set to false.
    fn take<'a>(&mut self, flags: impl Iterator<Item = (&'a str, bool)>) {
        for (flag, denial) in flags {
            self.taken.insert(flag.to_owned());
            if !denial {
                self.taken
                    .extend(overruled_by(flag).iter().map(|&flag| flag.to_owned()));
            }
        }
    }

    /// Adds the next lower layer.
    fn lay(&mut self, layer: Vec<LayerValue>) {
        let free: Vec<LayerValue> = layer
            .into_iter()
            .filter(|given| !self.taken.contains(&given.flag))
            .collect();
        self.take(
            free.iter()
                .map(|given| (given.flag.as_str(), given.value == "false")),
        );
        self.given.extend(free);
    }

    fn parse_over(&self, arguments: Vec<OsString>) -> Result<Flags, FlagsError> {
        let as_flag =
            |given: &LayerValue| OsString::from(format!("--{}={}", given.flag, given.value));
        for given in &self.given {
            let alone = arguments.iter().cloned().chain([as_flag(given)]);
            if let Err(error) = cli::command().try_get_matches_from(alone) {
                return Err(FlagsError::Value {
                    origin: given.origin.clone(),
                    message: one_line(&error),
                });
            }
        }
        let all = arguments.into_iter().chain(self.given.iter().map(as_flag));
        let matches = cli::command().try_get_matches_from(all)?;
        Ok(Flags::from_arg_matches(&matches)?)
    }
}

/// Choices that exclude each other: a higher layer that names one takes the others from the layers below, so that a
/// file's upstream can be replaced by one flag.
fn overruled_by(flag: &str) -> &'static [&'static str] {
    match flag {
        "kubeconfig" | "in-cluster" | "upstream" => {
            &["kubeconfig", "context", "in-cluster", "upstream"]
        }
        "plain-http" => &["tls-cert", "tls-key", "tls-sni-cert-key"],
        "tls-cert" | "tls-key" => &["plain-http"],
        _ => &[],
    }
}

/// The first line of what clap would print over several.
pub(super) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

impl FlagsError {
    /// What to print, in one line; `None` if it is help or the version, which go to standard output and are no error.
    #[must_use]
    pub fn one_line(&self) -> Option<String> {
        match self {
            Self::CommandLine(error) if !error.use_stderr() => None,
            Self::CommandLine(error)
                if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
            {
                Some("no command given; see --help".to_owned())
            }
            Self::CommandLine(error) => Some(format!("{}; see --help", one_line(error))),
            Self::File(FileError::Io { path, source }) => {
                Some(format!("{}: {source}", path.display()))
            }
            Self::Value { .. } | Self::UnknownKey { .. } | Self::File(_) => Some(self.to_string()),
        }
    }
}
