//! Combines the layers: flags override the environment, which overrides the file, and clap parses the result.
//!
//! Every layer is turned into flags first, so a setting has one definition, one syntax and one validation, wherever it is written.
//! Each value of the environment and the file is parsed alone first, so that an error names the variable or the line.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};

use super::file::{self, FileError};
use super::removed::{in_command_line, replacement};
use super::suggestion::{did_you_mean, nearest};
use crate::cli::{self, Flags};

/// Flags, environment and file cannot be combined.
#[derive(Debug, thiserror::Error)]
pub enum FlagsError {
    /// The command line is invalid, or requests help or the version.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// A variable or a line of the file has an invalid value.
    #[error("{origin}: {message}")]
    Value {
        /// Where the value is, such as `KUBE_FANOUT_LISTEN` or `config.yaml:3: listen`.
        origin: String,
        /// What is wrong with the value.
        message: String,
    },
    /// A key of the file that is not the name of a flag.
    #[error("{origin}: unknown key{}", did_you_mean(.meant.as_deref()))]
    UnknownKey {
        /// Where the key is, such as `config.yaml:3: lisen`.
        origin: String,
        /// The key that was probably meant.
        meant: Option<String>,
    },
    /// A variable that looks like one of the gateway's, but is of no flag.
    #[error("{name}: unknown variable{}", did_you_mean(.meant.as_deref()))]
    UnknownVariable {
        /// Its name.
        name: String,
        /// The variable that was probably meant.
        meant: Option<String>,
    },
    /// A setting that an earlier version had.
    #[error("{origin}: was removed: {replacement}")]
    Removed {
        /// Where it is, such as `--canary-namespace` or `config.yaml:3: canaryNamespace`.
        origin: String,
        /// What shows or does now what it did.
        replacement: &'static str,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The value of a flag in the environment or the file.
#[derive(Clone, Debug)]
struct LayerValue {
    /// The flag's name without dashes.
    flag: String,
    value: String,
    /// Where the value is, for error messages.
    origin: String,
}

/// Implements [`super::read`].
pub(super) fn read(
    arguments: Vec<OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Flags, FlagsError> {
    let typed = cli::command().try_get_matches_from(&arguments);
    let typed = typed.map_err(|error| match in_command_line(&error) {
        Some((origin, replacement)) => FlagsError::Removed {
            origin,
            replacement,
        },
        None => error.into(),
    })?;
    // The flags are those of another program, which reads the environment itself.
    if typed.subcommand_name() == Some("top") {
        return Ok(Flags::from_arg_matches(&typed)?);
    }
    let (command, matches) = subcommand(&cli::command(), &typed);
    let names: Vec<String> = flag_names(&command);

    let mut decisions = LayerDecisions::default();
    decisions.override_lower(
        names
            .iter()
            .filter(|name| is_typed(matches, name))
            .map(|name| (name.as_str(), is_switched_off(matches, name))),
    );
    decisions.add_layer(environment(&names, variable)?);
    if let Some(path) = file_path(matches, &decisions) {
        decisions.add_layer(from_file(&path, &command)?);
    }
    decisions.parse_with(arguments)
}

/// The subcommand of the command line, and its flags.
fn subcommand<'a>(root: &clap::Command, typed: &'a ArgMatches) -> (clap::Command, &'a ArgMatches) {
    let (mut command, mut matches) = (root, typed);
    while let Some((name, below)) = matches.subcommand() {
        let Some(next) = command.find_subcommand(name) else {
            break;
        };
        (command, matches) = (next, below);
    }
    (command.clone(), matches)
}

/// All commands, with their names below the program, such as `config print`; `serve` is first.
pub(super) fn commands() -> Vec<(String, clap::Command)> {
    let mut found: Vec<(String, clap::Command)> = Vec::new();
    let mut next = vec![(String::new(), cli::command())];
    while let Some((path, command)) = next.pop() {
        let subcommands: Vec<_> = command.get_subcommands().cloned().collect();
        next.extend(subcommands.into_iter().rev().map(|below| {
            let name = format!("{path} {}", below.get_name());
            (name.trim_start().to_owned(), below)
        }));
        if !path.is_empty() {
            found.push((path, command));
        }
    }
    found
}

fn flag_names(command: &clap::Command) -> Vec<String> {
    command
        .get_arguments()
        .filter_map(|flag| flag.get_long())
        .filter(|name| !matches!(*name, "help" | "version"))
        .map(str::to_owned)
        .collect()
}

/// The settings of a file, in the order of the help of `serve`: the id of each flag and its key.
pub(super) fn keys() -> Vec<(String, String)> {
    let names = settings_of_file().into_iter();
    names.map(|name| (id_of(&name), key_of(&name))).collect()
}

/// The names of the flags that a file may hold. The file is one of `serve`, whichever command reads it: a key that `serve` does not have
/// would keep it from starting.
fn settings_of_file() -> Vec<String> {
    let command = cli::command();
    let names = command.find_subcommand("serve").map(flag_names);
    let names = names.unwrap_or_default().into_iter();
    names.filter(|name| name != "config").collect()
}

fn id_of(name: &str) -> String {
    name.replace('-', "_")
}

fn is_typed(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(&id_of(name)) == Some(ValueSource::CommandLine)
}

/// Whether a switch was given as `=false`.
fn is_switched_off(matches: &ArgMatches, name: &str) -> bool {
    matches!(matches.try_get_one::<bool>(&id_of(name)), Ok(Some(false)))
}

/// The values of the environment.
fn environment(
    names: &[String],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<LayerValue>, FlagsError> {
    let mut values = Vec::new();
    for name in names {
        let standard = standard_variable(name);
        let names = [Some(variable_of(name)), standard.map(str::to_owned)];
        let mut given = names.into_iter().flatten();
        let given = given.find_map(|origin| variable(&origin).map(|value| (origin, value)));
        let Some((origin, value)) = given else {
            continue;
        };
        let value = value.into_string().map_err(|_| FlagsError::Value {
            origin: origin.clone(),
            message: "not UTF-8".to_owned(),
        })?;
        values.push(LayerValue {
            flag: name.clone(),
            value,
            origin,
        });
    }
    Ok(values)
}

/// A variable that other programs have for the same setting. A build that cannot send spans ignores that of the collector, which may be set
/// for all programs of a pod.
fn standard_variable(name: &str) -> Option<&'static str> {
    (cfg!(feature = "otlp") && name == "otlp-endpoint").then_some("OTEL_EXPORTER_OTLP_ENDPOINT")
}

/// Variables of the build, of the tests, which run the program in their own environment, and of `kube-fanout-top`.
const OTHER_VARIABLES: [&str; 8] = [
    "KUBE_FANOUT_COMMIT",
    "KUBE_FANOUT_REQUIRE",
    "KUBE_FANOUT_TEST_",
    "KUBE_FANOUT_URL",
    "KUBE_FANOUT_INTERVAL",
    "KUBE_FANOUT_ONCE",
    "KUBE_FANOUT_SORT",
    "KUBE_FANOUT_TOKEN_FILE",
];

/// Implements [`super::check_variables`].
pub(super) fn check_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(), FlagsError> {
    // Each flag of any command: all commands of a shell have the same environment.
    let known = commands().into_iter();
    let known = known.flat_map(|(_, command)| flag_names(&command));
    let known: Vec<_> = known.map(|name| variable_of(&name)).collect();
    for (name, value) in variables {
        let (Some(name), value) = (name.to_str(), value.to_string_lossy()) else {
            continue;
        };
        let is_ours = name.starts_with(VARIABLE_PREFIX)
            && !OTHER_VARIABLES.iter().any(|other| name.starts_with(other))
            && !is_of_service(name, &value);
        if is_ours && !known.iter().any(|known| known == name) {
            if let Some(replacement) = replacement(name) {
                let origin = name.to_owned();
                return Err(FlagsError::Removed {
                    origin,
                    replacement,
                });
            }
            return Err(FlagsError::UnknownVariable {
                name: name.to_owned(),
                meant: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
            });
        }
    }
    Ok(())
}

/// Whether Kubernetes sets this variable in pods, for a Service named `kube-fanout` or `kube-fanout-…`: `KUBE_FANOUT_SERVICE_HOST`,
/// `KUBE_FANOUT_SERVICE_PORT_HTTPS`, `KUBE_FANOUT_PORT`, `KUBE_FANOUT_PORT_8443_TCP_ADDR`.
fn is_of_service(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    let is_url = PROTOCOLS.iter().any(|protocol| {
        let rest = value.strip_prefix(&protocol.to_lowercase());
        rest.is_some_and(|rest| rest.starts_with("://"))
    });
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    if name.ends_with("_SERVICE_HOST") {
        return value.parse::<std::net::IpAddr>().is_ok();
    }
    if name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return is_port(value);
    }
    if name.ends_with("_PORT") && is_url {
        return true;
    }
    name.match_indices("_PORT_").any(|(at, word)| {
        let mut words = name[at + word.len()..].split('_');
        words.next().is_some_and(is_port)
            && words.next().is_some_and(|word| PROTOCOLS.contains(&word))
            && matches!(words.next(), None | Some("PROTO" | "PORT" | "ADDR"))
            && words.next().is_none()
    })
}

const VARIABLE_PREFIX: &str = "KUBE_FANOUT_";

/// The environment variable of a flag: `KUBE_FANOUT_TLS_CERT` for `tls-cert`.
fn variable_of(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", id_of(name).to_uppercase())
}

/// The key of a flag in the file: `tlsCert` for `tls-cert`.
fn key_of(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for (index, word) in name.split('-').enumerate() {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if index > 0 => key.push(first.to_ascii_uppercase()),
            Some(first) => key.push(first),
            None => {}
        }
        key.push_str(letters.as_str());
    }
    key
}

fn file_path(matches: &ArgMatches, decisions: &LayerDecisions) -> Option<PathBuf> {
    if let Ok(Some(path)) = matches.try_get_one::<PathBuf>("config") {
        return Some(path.clone());
    }
    decisions
        .values
        .iter()
        .find(|value| value.flag == "config")
        .map(|value| PathBuf::from(&value.value))
}

fn from_file(path: &Path, command: &clap::Command) -> Result<Vec<LayerValue>, FlagsError> {
    let names = settings_of_file();
    let mut values = Vec::new();
    for entry in file::read(path)? {
        let origin = format!("{}:{}: {}", path.display(), entry.line, entry.key);
        let Some(flag) = names.iter().find(|name| key_of(name) == entry.key) else {
            if let Some(replacement) = replacement(&entry.key) {
                return Err(FlagsError::Removed {
                    origin,
                    replacement,
                });
            }
            let keys: Vec<String> = names.iter().map(|name| key_of(name)).collect();
            let meant = nearest(&entry.key, keys.iter().map(String::as_str));
            return Err(FlagsError::UnknownKey {
                origin,
                meant: meant.map(str::to_owned),
            });
        };
        values.push(LayerValue {
            flag: flag.clone(),
            value: entry.words.join(delimiter(command, flag)),
            origin,
        });
    }
    Ok(values)
}

/// The separator of the elements of a list in a flag's value.
fn delimiter(command: &clap::Command, flag: &str) -> &'static str {
    let flag = command
        .get_arguments()
        .find(|one| one.get_long() == Some(flag));
    match flag.and_then(clap::Arg::get_value_delimiter) {
        Some(';') => ";",
        _ => ",",
    }
}

/// The values of the layers that were added so far, from the highest to the lowest.
#[derive(Debug, Default)]
struct LayerDecisions {
    /// Flags whose values in lower layers are ignored.
    decided: BTreeSet<String>,
    values: Vec<LayerValue>,
}

impl LayerDecisions {
    /// Marks the flags of one layer as decided, together with the flags that they override. Each item tells whether the flag is a
    /// switch that is set to false, which overrides no other flag.
    fn override_lower<'a>(&mut self, flags: impl Iterator<Item = (&'a str, bool)>) {
        for (flag, switched_off) in flags {
            self.decided.insert(flag.to_owned());
            if !switched_off {
                self.decided
                    .extend(overridden_by(flag).iter().map(|&flag| flag.to_owned()));
            }
        }
    }

    /// Adds the next lower layer: those of its values that are not decided yet.
    fn add_layer(&mut self, layer: Vec<LayerValue>) {
        let effective: Vec<LayerValue> = layer
            .into_iter()
            .filter(|value| !self.decided.contains(&value.flag))
            .collect();
        self.override_lower(
            effective
                .iter()
                .map(|value| (value.flag.as_str(), value.value == "false")),
        );
        self.values.extend(effective);
    }

    /// Parses the command line together with the values of the other layers.
    fn parse_with(&self, arguments: Vec<OsString>) -> Result<Flags, FlagsError> {
        let as_flag =
            |value: &LayerValue| OsString::from(format!("--{}={}", value.flag, value.value));
        for value in &self.values {
            let alone = arguments.iter().cloned().chain([as_flag(value)]);
            if let Err(error) = cli::command().try_get_matches_from(alone) {
                return Err(FlagsError::Value {
                    origin: value.origin.clone(),
                    message: one_line(&error),
                });
            }
        }
        let all = arguments.into_iter().chain(self.values.iter().map(as_flag));
        let matches = cli::command().try_get_matches_from(all)?;
        Ok(Flags::from_arg_matches(&matches)?)
    }
}

/// Flags whose values in lower layers are ignored if `flag` is set, because the choices exclude each other. So a single flag
/// replaces the upstream of the file.
fn overridden_by(flag: &str) -> &'static [&'static str] {
    match flag {
        "kubeconfig" | "in-cluster" | "upstream" => &[
            "kubeconfig",
            "context",
            "in-cluster",
            "upstream",
            "api-servers",
        ],
        "plain-http" => &["tls-cert", "tls-key", "tls-sni-cert-key"],
        "tls-cert" | "tls-key" => &["plain-http"],
        _ => &[],
    }
}

/// The first line of an error that clap would print on several lines.
pub(super) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    // The names of missing flags, or the values that are allowed, stand on the lines below.
    let rest: Vec<&str> = lines
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let line = [&[first], rest.as_slice()].concat().join(" ");
    line + &did_you_mean(meant(error).as_deref())
}

/// The flag, command or value that clap thinks was meant.
fn meant(error: &clap::Error) -> Option<String> {
    let kinds = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    kinds.into_iter().find_map(|kind| {
        let value = error.get(kind)?;
        if let ContextValue::String(meant) = value {
            return Some(meant.clone());
        }
        let ContextValue::Strings(meant) = value else {
            return None;
        };
        // The best comes last.
        meant.last().cloned()
    })
}

/// The flag of a command that was probably meant by one that stands before the command, or with another one.
fn meant_of_command(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let given = given.strip_prefix("--")?;
    let flags: Vec<_> = commands()
        .into_iter()
        .flat_map(|(path, command)| {
            let names = flag_names(&command).into_iter();
            names.map(move |name| (path.clone(), name))
        })
        .collect();
    let name = nearest(given, flags.iter().map(|(_, name)| name.as_str()))?;
    let (path, name) = flags.iter().find(|(_, known)| known == name)?;
    Some(format!("kube-fanout {path} --{name}"))
}

impl FlagsError {
    /// The error as one line; `None` if it is help or the version, which are printed on standard output and are not errors.
    #[must_use]
    pub fn one_line(&self) -> Option<String> {
        match self {
            Self::CommandLine(error) if !error.use_stderr() => None,
            Self::CommandLine(error)
                if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
            {
                Some("no command given; see --help".to_owned())
            }
            Self::CommandLine(error) if meant(error).is_some() => Some(one_line(error)),
            Self::CommandLine(error) if let Some(meant) = meant_of_command(error) => {
                Some(one_line(error) + &did_you_mean(Some(&meant)))
            }
            Self::CommandLine(error) => Some(format!("{}; see --help", one_line(error))),
            Self::File(FileError::Io { path, source }) => {
                Some(format!("{}: {source}", path.display()))
            }
            Self::Value { .. }
            | Self::UnknownKey { .. }
            | Self::UnknownVariable { .. }
            | Self::Removed { .. }
            | Self::File(_) => Some(self.to_string()),
        }
    }
}
