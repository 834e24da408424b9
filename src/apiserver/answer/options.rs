//! Options of writes: dry run, and the preconditions of a deletion. Other options are accepted and ignored.

use serde::Deserialize;

use super::super::json_errors::syntax;
use super::super::storage::{Preconditions, WriteMode};
use crate::protocol::request::{Query, Verb};
use crate::protocol::status::{Status, StatusCause, StatusDetails};

/// The fields of `DeleteOptions` that are used.
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

/// Parses the body of a deletion. An empty body has no preconditions. `mode` is the one that the query requests.
///
/// # Errors
/// 400 for a body that is not a `DeleteOptions`, 422 for a `dryRun` value other than `All`.
pub(super) fn delete_options(
    body: &[u8],
    mode: WriteMode,
) -> Result<(Preconditions, WriteMode), Status> {
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
        values => dry_run_mode(Verb::Delete, values)?,
    };
    let preconditions = options.preconditions.unwrap_or_default();
    let preconditions = Preconditions {
        uid: preconditions.uid,
        resource_version: preconditions.resource_version,
    };
    Ok((preconditions, mode))
}

/// Parses `dryRun` from a query.
///
/// # Errors
/// 422 for a value other than `All`.
pub(super) fn dry_run(verb: Verb, query: &Query) -> Result<WriteMode, Status> {
    let values = query.all("dryRun").filter(|value| !value.is_empty());
    let values: Vec<String> = values.map(str::to_owned).collect();
    if values.is_empty() {
        Ok(WriteMode::Keep)
    } else {
        dry_run_mode(verb, &values)
    }
}

fn dry_run_mode(verb: Verb, values: &[String]) -> Result<WriteMode, Status> {
    if values.iter().all(|value| value == "All") {
        return Ok(WriteMode::DryRun);
    }
    let kind = match verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        Verb::Get
        | Verb::List
        | Verb::Watch
        | Verb::Delete
        | Verb::DeleteCollection
        | Verb::Other => "DeleteOptions",
    };
    let value = format!("{values:?}");
    let details = StatusDetails {
        group: "meta.k8s.io".to_owned(),
        kind: kind.to_owned(),
        causes: vec![StatusCause::unsupported("dryRun", &value, "\"All\"")],
        ..StatusDetails::default()
    };
    Err(Status::invalid(&format!("{kind}.meta.k8s.io"), details))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_s_body_gives_conditions_and_dry_run() {
        let body = br#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","dryRun":["All"],"preconditions":{"uid":"u"}}"#;
        let expected = Preconditions {
            uid: Some("u".into()),
            resource_version: None,
        };
        assert_eq!(
            delete_options(body, WriteMode::Keep),
            Ok((expected, WriteMode::DryRun))
        );
        assert_eq!(
            delete_options(b"", WriteMode::Keep),
            Ok((Preconditions::default(), WriteMode::Keep))
        );
    }

    #[test]
    fn another_kind_is_refused_as_a_real_server_does() {
        let refusal =
            delete_options(br#"{"kind":"Foo","apiVersion":"v1"}"#, WriteMode::Keep).unwrap_err();
        assert_eq!(
            refusal.message,
            r#"no kind "Foo" is registered for version "v1" in scheme "pkg/apis/meta/internalversion/scheme/register.go:27""#
        );
    }

    #[test]
    fn a_dry_run_is_all_or_refused() {
        let create = |query| dry_run(Verb::Create, &Query::parse(Some(query)));
        assert_eq!(create("fieldManager=x&dryRun=All"), Ok(WriteMode::DryRun));
        assert_eq!(create("pretty=0"), Ok(WriteMode::Keep));
        assert_eq!(
            create("dryRun=foo").unwrap_err().message,
            r#"CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["foo"]: supported values: "All""#
        );
    }
}
