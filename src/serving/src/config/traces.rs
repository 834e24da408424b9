//! Settings of traces.

use http::Uri;

use super::settings_error::{SettingsError, refuse_user_info};
use crate::cli::{Ratio, ServeFlags};

/// Where spans are sent, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The collector, by `http`; `/v1/traces` is appended.
    pub endpoint: Uri,
    /// The part of all traces that is sent.
    pub ratio: Ratio,
}

impl TraceSettings {
    pub(super) fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let given = flags.otlp_endpoint.as_ref().filter(|text| !text.is_empty());
        let Some(text) = given else {
            return Ok(None);
        };
        refuse_user_info("otlp-endpoint", text)?;
        let refuse = |reason: &str| SettingsError::Value {
            flag: "otlp-endpoint",
            given: text.clone(),
            reason: reason.to_owned(),
        };
        if !cfg!(feature = "otlp") {
            return Err(refuse(
                "this program was built without the cargo feature otlp",
            ));
        }
        let endpoint: Uri = text
            .parse()
            .map_err(|_| refuse("not a URL: write http://127.0.0.1:4318"))?;
        if endpoint.scheme_str() != Some("http") || endpoint.host().is_none() {
            return Err(refuse(
                "only http:// is supported: write http://127.0.0.1:4318, the address of a collector on this node",
            ));
        }
        if endpoint.query().is_some() {
            return Err(refuse("write no query"));
        }
        Ok(Some(Self {
            endpoint,
            ratio: flags.otlp_ratio,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Command, Flags};

    fn resolved(endpoint: &str) -> Result<Option<TraceSettings>, String> {
        let flag = format!("--otlp-endpoint={endpoint}");
        let flags = Flags::try_parse_from(["kube-fanout", "serve", &flag]).unwrap();
        let Command::Serve(flags) = flags.command else {
            panic!();
        };
        TraceSettings::resolve(&flags).map_err(|error| error.to_string())
    }

    #[test]
    fn a_collector_is_an_address_or_refused() {
        assert_eq!(resolved(""), Ok(None));
        for wrong in [
            "https://collector:4318",
            "collector:4318",
            "http://collector/?a=b",
            "http://jane:hunter2@collector",
        ] {
            let error = resolved(wrong).unwrap_err();
            assert!(error.starts_with("--otlp-endpoint"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let right = resolved("http://127.0.0.1:4318");
        if cfg!(feature = "otlp") {
            assert_eq!(right.unwrap().unwrap().ratio, Ratio(10_000));
        } else {
            assert!(
                right
                    .unwrap_err()
                    .contains("without the cargo feature otlp")
            );
        }
    }
}
