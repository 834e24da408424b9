//! `/debug/profile`: where the process spends its CPU time, in the format of pprof (feature `profile`; decision 56).

use std::time::Duration;

use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, Method, Request, StatusCode};
use pprof::protos::Message;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use tokio::sync::Mutex;

use super::access::{self, AccessRight};
use super::response::{AdminResponse, only_parameter, refused, reply, text, wrong_method};
use super::visit::Visit;
use crate::blocking::spawn_blocking;

const RIGHT: AccessRight = AccessRight {
    verb: "get",
    path: "/kube-fanout/profile",
    subject: "the profile",
};
/// Samples per second of CPU time: few enough not to be noticed, and no divisor of common periods.
const FREQUENCY: i32 = 99;
const SECONDS_DEFAULT: u64 = 10;
/// Less than the age that a connection to the admin port may have, so that there is time to send the profile.
const SECONDS_MAX: u64 = 60;
/// Code that must not be unwound from a signal, because it may hold the unwinder's own locks.
const NOT_UNWOUND: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];
const BINARY: &str = "application/octet-stream";

/// The process has one timer for profiles.
static TIMER: Mutex<()> = Mutex::const_new(());

/// Answers a request for `/debug/profile`, after the time of the profile.
pub(super) async fn answer<B>(request: &Request<B>, visit: &mut Visit) -> AdminResponse {
    if request.method() != Method::GET {
        return wrong_method("GET");
    }
    // A page of another site may ask for it, although it cannot read it.
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site != "none" && site != "same-origin") {
        let reason = "not for pages of other sites\n".to_owned();
        return text(StatusCode::FORBIDDEN, reason);
    }
    if let Err(refusal) = access::check(visit, &RIGHT).await {
        return refused(refusal);
    }
    let seconds = match seconds(request.uri().query()) {
        Ok(seconds) => seconds,
        Err(reason) => return text(StatusCode::BAD_REQUEST, format!("{reason}\n")),
    };
    let Ok(_timer) = TIMER.try_lock() else {
        let reason = "another profile is being taken\n".to_owned();
        return text(StatusCode::TOO_MANY_REQUESTS, reason);
    };
    match profile(Duration::from_secs(seconds)).await {
        Ok(profile) => {
            let mut response = reply(StatusCode::OK, BINARY, profile);
            let name = HeaderValue::from_static("attachment; filename=\"kube-fanout.pb\"");
            response.headers_mut().insert(CONTENT_DISPOSITION, name);
            response
        }
        Err(reason) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{reason}\n")),
    }
}

fn seconds(query: Option<&str>) -> Result<u64, String> {
    let Some(value) = only_parameter(query, "seconds")? else {
        return Ok(SECONDS_DEFAULT);
    };
    let seconds = value.parse().ok();
    let seconds = seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| format!("seconds: write a number from 1 to {SECONDS_MAX}"))
}

/// Samples for this time. Dropping the future, as when the client leaves, ends the sampling.
async fn profile(time: Duration) -> Result<Vec<u8>, String> {
    // The first one allocates much and writes a file.
    let begun = spawn_blocking(|| {
        ProfilerGuardBuilder::default()
            .frequency(FREQUENCY)
            .blocklist(&NOT_UNWOUND)
            .build()
    });
    let sampling = begun.await.map_err(|error| error.to_string())?;
    let folder = std::env::temp_dir();
    let sampling = sampling.map_err(|error| {
        let folder = folder.display();
        format!(
            "cannot take a profile: {error}; it writes a file to {folder}, which TMPDIR can change"
        )
    })?;
    tokio::time::sleep(time).await;
    // Finding the names of functions reads the program's debug information, which takes a second or more.
    let written = spawn_blocking(move || write(&sampling)).await;
    written
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("cannot write the profile: {error}"))
}

fn write(sampling: &ProfilerGuard<'_>) -> Result<Vec<u8>, pprof::Error> {
    let report = sampling.report().build()?;
    Ok(report.pprof()?.encode_to_vec())
}

#[cfg(test)]
mod tests;
