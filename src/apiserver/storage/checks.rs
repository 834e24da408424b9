//! Checks a write against its path and the stored object: names, versions, uids.

use serde_json::Value;

use super::super::kinds::ServedKind;
use super::super::refusal;
use super::input::Preconditions;
use super::metadata::metadata_text;
use crate::protocol::status::{Status, StatusCause, StatusDetails};
use crate::resource::{Layout, ObjectKey, ResourceVersion};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Name and namespace of the body must be those of the path.
pub(super) fn check_names(kind: &ServedKind, key: &ObjectKey, body: &Value) -> Result<(), Status> {
    let (name, expected) = (metadata_text(body, "name"), key.name());
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != expected {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({expected})"
        )));
    }
    check_namespace(kind, key.namespace(), body)
}

/// The body's namespace must be absent or the path's, and absent for kinds that are not namespaced.
pub(super) fn check_namespace(
    kind: &ServedKind,
    expected: &str,
    body: &Value,
) -> Result<(), Status> {
    let namespace = metadata_text(body, "namespace");
    if namespace.is_empty() || (kind.resource.namespaced && namespace == expected) {
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// The body's resource version must be absent or a number. kube-apiserver's error has no reason.
pub(super) fn check_version_text(body: &Value) -> Result<(), Status> {
    match metadata_text(body, "resourceVersion") {
        "" => Ok(()),
        version => match version.parse::<ResourceVersion>() {
            Ok(_) => Ok(()),
            Err(fault) => Err(Status::untyped(fault.to_string())),
        },
    }
}

/// Uid and resource version of an update must be absent or the stored object's. Custom resources need a resource version.
pub(super) fn check_update_preconditions(
    kind: &ServedKind,
    key: &ObjectKey,
    body: &Value,
    old: &Value,
) -> Result<(), Status> {
    let (uid, stored_uid) = (metadata_text(body, "uid"), metadata_text(old, "uid"));
    if !uid.is_empty() && uid != stored_uid {
        let path = match &*kind.resource.gvr.group {
            "" => kind.resource.gvr.resource.to_string(),
            group if kind.resource.layout == Layout::Dynamic => {
                format!("{group}/{}", kind.resource.gvr.resource)
            }
            _ => kind.resource.gvr.resource.to_string(),
        };
        return Err(Status::conflict(
            &kind.resource.gvr,
            key.name(),
            format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{path}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}"
            ),
        ));
    }
    let version = metadata_text(body, "resourceVersion");
    if version.is_empty() || version.parse() == Ok(ResourceVersion(0)) {
        if kind.resource.layout == Layout::Typed {
            return Ok(());
        }
        let cause = StatusCause::invalid(
            "metadata.resourceVersion",
            "0",
            "must be specified for an update",
        );
        let details = StatusDetails {
            causes: vec![cause],
            ..kind.resource_details(key.name())
        };
        return Err(Status::invalid(&kind.qualified_resource(), details));
    }
    check_version(kind, key, version, old)
}

/// Resource version and uid of a patched object must be absent or the stored object's.
pub(super) fn check_patch_conflict(
    kind: &ServedKind,
    key: &ObjectKey,
    new: &Value,
    old: &Value,
) -> Result<(), Status> {
    let version = metadata_text(new, "resourceVersion");
    if !version.is_empty() {
        check_version(kind, key, version, old)?;
    }
    let uid = metadata_text(new, "uid");
    if !uid.is_empty() && uid != metadata_text(old, "uid") {
        let cause = StatusCause::invalid("metadata.uid", &format!("{uid:?}"), "field is immutable");
        return Err(refusal::invalid(kind, key.name(), vec![cause]));
    }
    Ok(())
}

fn check_version(
    kind: &ServedKind,
    key: &ObjectKey,
    version: &str,
    old: &Value,
) -> Result<(), Status> {
    if version.parse::<ResourceVersion>().ok() == metadata_text(old, "resourceVersion").parse().ok()
    {
        return Ok(());
    }
    Err(Status::conflict(&kind.resource.gvr, key.name(), MODIFIED))
}

/// The preconditions of a deletion must hold for the stored object.
pub(super) fn check_delete_preconditions(
    kind: &ServedKind,
    key: &ObjectKey,
    preconditions: &Preconditions,
    old: &Value,
) -> Result<(), Status> {
    let refuse = |why: String| Err(refusal::precondition(kind, key.name(), &why));
    let stored = metadata_text(old, "uid");
    if let Some(uid) = preconditions.uid.as_deref().filter(|uid| *uid != stored) {
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({stored}). The object might have been deleted and then recreated"
        ));
    }
    let stored = metadata_text(old, "resourceVersion");
    if let Some(version) = preconditions
        .resource_version
        .as_deref()
        .filter(|version| *version != stored)
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({stored}). The object might have been modified"
        ));
    }
    Ok(())
}
