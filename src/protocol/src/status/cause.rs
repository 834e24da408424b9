//! The individual faults of a rejected object or of options, with the messages of Go's `field.Error`.

use std::borrow::Cow;

use serde::Serialize;

/// One fault of possibly several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// Machine-readable type of the fault.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Human-readable message, without the field's name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Cow<'static, str>,
    /// The field or parameter.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub field: &'static str,
}

impl StatusCause {
    fn new(reason: &'static str, field: &'static str, message: String) -> Self {
        Self {
            reason,
            message: message.into(),
            field,
        }
    }

    /// A value that breaks a rule; `value` is formatted as Go prints it.
    #[must_use]
    pub fn invalid(field: &'static str, value: &str, rule: &str) -> Self {
        let message = format!("Invalid value: {value}: {rule}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// A required value that is missing.
    #[must_use]
    pub fn required(field: &'static str, rule: &str) -> Self {
        Self::new(
            "FieldValueRequired",
            field,
            format!("Required value: {rule}"),
        )
    }

    /// A value that is not allowed here.
    #[must_use]
    pub fn forbidden(field: &'static str, rule: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {rule}"))
    }

    /// A value that is not one of those `supported`; both are formatted as Go prints them.
    #[must_use]
    pub fn unsupported(field: &'static str, value: &str, supported: &str) -> Self {
        let message = format!("Unsupported value: {value}: supported values: {supported}");
        Self::new("FieldValueNotSupported", field, message)
    }
}
