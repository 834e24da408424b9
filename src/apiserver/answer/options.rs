//! Options of writes: dry runs and a deletion's conditions. Other options are accepted and do nothing.

use serde::Deserialize;

use super::super::body::syntax;
use super::super::route::Verb;
use super::super::storage::{Mode, Preconditions};
use crate::downstream::status::{Cause, Details, Status};

/// `DeleteOptions`, as far as it is looked at.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    kind: String,
    api_version: String,
    dry_run: Option<Vec<String>>,
    preconditions: Option<WirePreconditions>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePreconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// Reads the body of a deletion; an empty one has no conditions.
///
/// # Errors
/// 400 for a body that is no `DeleteOptions`.
pub(super) fn delete_options(body: &[u8], mode: Mode) -> Result<(Preconditions, Mode), Status> {
    if body.is_empty() {
        return Ok((Preconditions::default(), mode));
    }
    let options: DeleteOptions = serde_json::from_slice(body).map_err(|fault| {
        Status::bad_request(format!(
            "couldn't get version/kind; json parse error: {}",
            syntax(&fault, body)
        ))
    })?;
    if !matches!(options.kind.as_str(), "" | "DeleteOptions") {
        return Err(Status::bad_request(format!(
            "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\"",
            options.kind, options.api_version
        )));
    }
    let mode = match options.dry_run.unwrap_or_default().as_slice() {
        [] => mode,
        words => dry_run_words(Verb::Delete, words)?,
    };
    let wanted = options.preconditions.unwrap_or_default();
    let preconditions = Preconditions {
        uid: wanted.uid,
        resource_version: wanted.resource_version,
    };
    Ok((preconditions, mode))
}

/// Reads `dryRun` from a query.
///
/// # Errors
/// 422 for another word than `All`.
pub(super) fn dry_run(verb: Verb, query: &str) -> Result<Mode, Status> {
    let words: Vec<String> = query_values(query, "dryRun")
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        Ok(Mode::Keep)
    } else {
        dry_run_words(verb, &words)
    }
}

fn dry_run_words(verb: Verb, words: &[String]) -> Result<Mode, Status> {
    if words.iter().all(|word| word == "All") {
        return Ok(Mode::DryRun);
    }
    let kind = match verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        Verb::Get | Verb::List | Verb::Watch | Verb::Delete | Verb::DeleteCollection => {
            "DeleteOptions"
        }
    };
    let given = format!("{words:?}");
    let details = Details {
        group: "meta.k8s.io".to_owned(),
        kind: kind.to_owned(),
        causes: vec![Cause::unsupported("dryRun", &given, "\"All\"")],
        ..Details::default()
    };
    Err(Status::invalid(&format!("{kind}.meta.k8s.io"), details))
}

/// The first value of a query parameter, decoded.
pub(super) fn query_value(query: &str, name: &str) -> Option<String> {
    query_values(query, name).next()
}

fn query_values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(move |(key, _)| *key == name)
        .map(|(_, value)| unescaped(&value.replace('+', " ")))
}

/// Undoes percent-encoding; what is no escape stays as it is.
pub(in super::super) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| first == b'%').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        bytes.push(escape.unwrap_or(first));
        rest = if escape.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_s_body_gives_conditions_and_dry_run() {
        let body = br#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","dryRun":["All"],"preconditions":{"uid":"u"}}"#;
        let wanted = Preconditions {
            uid: Some("u".into()),
            resource_version: None,
        };
        assert_eq!(delete_options(body, Mode::Keep), Ok((wanted, Mode::DryRun)));
        assert_eq!(
            delete_options(b"", Mode::Keep),
            Ok((Preconditions::default(), Mode::Keep))
        );
    }

    #[test]
    fn another_kind_is_refused_as_a_real_server_does() {
        let refusal =
            delete_options(br#"{"kind":"Foo","apiVersion":"v1"}"#, Mode::Keep).unwrap_err();
        assert_eq!(
            refusal.message,
            r#"no kind "Foo" is registered for version "v1" in scheme "pkg/apis/meta/internalversion/scheme/register.go:27""#
        );
    }

    #[test]
    fn a_dry_run_is_all_or_refused() {
        assert_eq!(
            dry_run(Verb::Create, "fieldManager=x&dryRun=All"),
            Ok(Mode::DryRun)
        );
        assert_eq!(dry_run(Verb::Create, "pretty=0"), Ok(Mode::Keep));
        assert_eq!(
            dry_run(Verb::Create, "dryRun=foo").unwrap_err().message,
            r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["foo"]: supported values: "All""#
        );
    }

    #[test]
    fn queries_are_unescaped() {
        assert_eq!(
            query_value("a=1&b=x%3D1+%2", "b").as_deref(),
            Some("x=1 %2")
        );
    }
}
