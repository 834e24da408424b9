//! Parses a configuration file into keys and values, with the line of each key.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_saphyr::Spanned;

/// `apiVersion` of the file.
pub(super) const API_VERSION: &str = "kube-fanout.dev/v1alpha1";
/// `kind` of the file.
pub(super) const KIND: &str = "GatewayConfiguration";
/// The only key whose value may have structure: serving rules.
const STRUCTURED: &str = "serving";
/// A file with all settings has about 2 KB. The bound protects memory if the path names something huge by mistake.
const FILE_LEN_MAX: u64 = 1 << 20;

/// A configuration file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read, or is not UTF-8.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is longer than 1 MiB.
    #[error("{}: longer than 1 MiB", path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not YAML, or not a mapping of keys to scalars and lists.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// `apiVersion` or `kind` is missing or has another value.
    #[error("{}: write apiVersion: {API_VERSION} and kind: {KIND}", path.display())]
    Kind {
        /// Path of the file.
        path: PathBuf,
    },
}

/// One setting of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEntry {
    /// The key as written in the file, in camelCase; `a.b` for a key below another one, which no setting has.
    pub(super) key: String,
    /// The scalar, or the elements of the list.
    pub(super) words: Vec<String>,
    /// Line of the key, from 1.
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

/// Parses the text of the file at `path`, which is used in error messages only.
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
        f.write_str("a mapping of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        // Bounded by the length of the file.
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if key.value == STRUCTURED {
                entries.push(FileEntry {
                    line: key.referenced.line(),
                    key: key.value,
                    words: vec![text_of(&map.next_value()?)],
                });
                continue;
            }
            match map.next_value()? {
                SettingValue::Words(words) => entries.push(FileEntry {
                    line: key.referenced.line(),
                    key: key.value,
                    words,
                }),
                SettingValue::Nested(below) => {
                    entries.extend(below.into_iter().map(|entry| FileEntry {
                        key: format!("{}.{}", key.value, entry.key),
                        ..entry
                    }));
                }
            }
        }
        Ok(entries)
    }
}

/// A value with structure as JSON; a plain text as it is.
fn text_of(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The value of a setting, or what stands in its place.
enum SettingValue {
    Words(Vec<String>),
    /// A mapping with these keys, at least one.
    Nested(Vec<FileEntry>),
}

impl<'de> Deserialize<'de> for SettingValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = SettingValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        WordsVisitor.expecting(f)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SettingValue, E> {
        WordsVisitor.visit_str(text).map(SettingValue::Words)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<SettingValue, E> {
        WordsVisitor.visit_bool(value).map(SettingValue::Words)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<SettingValue, E> {
        WordsVisitor.visit_u64(value).map(SettingValue::Words)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<SettingValue, E> {
        WordsVisitor.visit_i64(value).map(SettingValue::Words)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<SettingValue, E> {
        WordsVisitor.visit_f64(value).map(SettingValue::Words)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<SettingValue, A::Error> {
        WordsVisitor.visit_seq(seq).map(SettingValue::Words)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SettingValue, A::Error> {
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
        match entries.is_empty() {
            true => Err(A::Error::invalid_type(Unexpected::Map, &self)),
            false => Ok(SettingValue::Nested(entries)),
        }
    }
}

/// A scalar or a list of scalars, each written as the flag expects it.
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
        f.write_str("a string, a number, true, false, or a list of these")
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
