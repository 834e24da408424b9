//! Options of writes: dry runs and a deletion's conditions. Other options are accepted and do nothing.

use serde::Deserialize;

use super::super::body::syntax;
use super::super::route::Verb;
use super::super::storage::{Mode, Preconditions};
use crate::protocol::request::Query;
use crate::protocol::status::{Cause, Details, Status};

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
pub(super) fn dry_run(verb: Verb, query: &Query) -> Result<Mode, Status> {
    let given = query.all("dryRun").filter(|word| !word.is_empty());
    let words: Vec<String> = given.map(str::to_owned).collect();
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
        let create = |query| dry_run(Verb::Create, &Query::parse(Some(query)));
        assert_eq!(create("fieldManager=x&dryRun=All"), Ok(Mode::DryRun));
        assert_eq!(create("pretty=0"), Ok(Mode::Keep));
        assert_eq!(
            create("dryRun=foo").unwrap_err().message,
            r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["foo"]: supported values: "All""#
        );
    }
}
