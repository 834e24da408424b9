//! Reads a configuration file into keys, values and the lines they stand on. The only place that parses YAML.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// `apiVersion` of the file.
pub(super) const API_VERSION: &str = "kube-fanout.dev/v1alpha1";
/// `kind` of the file.
pub(super) const KIND: &str = "GatewayConfiguration";
/// A file with every setting takes 2 KB; a mistaken path to something huge must not fill the memory.
const FILE_LEN_MAX: u64 = 1 << 20;

/// A configuration file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Not there, not allowed, not text.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Longer than any configuration.
    #[error("{}: longer than 1 MiB", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Not YAML, or not a mapping of keys to words.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// For another program, or for another version of this one.
    #[error("{}: write apiVersion: {API_VERSION} and kind: {KIND}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
}

/// One setting of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEntry {
    /// As written, in camelCase.
    pub(super) key: String,
    /// One word, or those of a list.
    pub(super) words: Vec<String>,
    /// Where the key stands, from 1.
    pub(super) line: u64,
}

/// The settings of the file at `path`, without `apiVersion` and `kind`, in order.
pub(super) fn read(path: &Path) -> Result<Vec<FileEntry>, FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(FILE_LEN_MAX + 1)
        .read_to_string(&mut text)
        .map_err(io)?;
    if text.len() as u64 > FILE_LEN_MAX {
        return Err(FileError::TooLong {
            path: path.to_owned(),
        });
    }
    parse(path, &text)
}

/// [`read`], given the text.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<FileEntry>, FileError> {
    let FileEntries(entries) = serde_saphyr::from_str(text).map_err(|error| {
        let message = error.without_snippet().to_string();
        FileError::Syntax {
            path: path.to_owned(),
            line: error.location().map_or(1, |location| location.line()),
            message: message.lines().next().unwrap_or("not YAML").to_owned(),
        }
    })?;
    let is = |key: &str, value: &str| entries.iter().any(|e| e.key == key && e.words == [value]);
    if !is("apiVersion", API_VERSION) || !is("kind", KIND) {
        return Err(FileError::Kind {
            path: path.to_owned(),
        });
    }
    let settings = entries
        .into_iter()
        .filter(|e| e.key != "apiVersion" && e.key != "kind");
    Ok(settings.collect())
}

struct FileEntries(Vec<FileEntry>);

impl<'de> Deserialize<'de> for FileEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor).map(Self)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Vec<FileEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings, one key each")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        // Bounded by the length of the file.
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let SettingWords(words) = map.next_value()?;
            entries.push(FileEntry {
                line: key.referenced.line(),
                key: key.value,
                words,
            });
        }
        Ok(entries)
    }
}

/// A scalar or a list of scalars, each as a flag takes it.
struct SettingWords(Vec<String>);

impl<'de> Deserialize<'de> for SettingWords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor).map(Self)
    }
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word, a number, true, false, or a list of words")
    }

    fn visit_str<E>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_bool<E>(self, value: bool) -> Result<Vec<String>, E> {
        Ok(vec![value.to_string()])
    }

    fn visit_u64<E>(self, value: u64) -> Result<Vec<String>, E> {
        Ok(vec![value.to_string()])
    }

    fn visit_i64<E>(self, value: i64) -> Result<Vec<String>, E> {
        Ok(vec![value.to_string()])
    }

    fn visit_f64<E>(self, value: f64) -> Result<Vec<String>, E> {
        Ok(vec![value.to_string()])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
        let mut all = Vec::new();
        while let Some(SettingWords(words)) = seq.next_element()? {
            all.extend(words);
        }
        Ok(all)
    }
}
