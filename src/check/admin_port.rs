//! Checks of the gateway's admin port.

use super::catalogue as checks;
use super::checklist::Checklist;
use super::handshake::name_of;
use super::requests::{get, lines_of, read_long};
use super::verdict::CheckVerdict;
use super::words::counted;
use crate::config::{CheckCategory, CheckSettings};
use crate::error_chain::one_line;
use crate::upstream::client::{Client, ConnectSource};

/// The prefix of every metric of a gateway.
const PREFIX: &str = "kube_fanout_";

pub(super) async fn check(list: &mut Checklist<'_>, settings: &CheckSettings) {
    let Some(url) = &settings.admin else {
        list.skip_rest(CheckCategory::Admin, "there is no --gateway-admin");
        return;
    };
    let source = ConnectSource::Url {
        url: url.clone(),
        ca_file: None,
    };
    let name = name_of(url);
    let client = match Client::connect(source).await {
        Ok(client) => client,
        Err(error) => {
            let verdict = CheckVerdict::failure(one_line(&error), "check --gateway-admin");
            list.make(&checks::ADMIN_READY, async { verdict }).await;
            list.skip_rest(CheckCategory::Admin, "admin-ready failed");
            return;
        }
    };
    list.make(&checks::ADMIN_READY, ready(&client, &name)).await;
    list.make(&checks::ADMIN_METRICS, metrics(&client, &name))
        .await;
}

async fn ready(client: &Client, name: &str) -> CheckVerdict {
    match get(client, "/readyz").await {
        Err(error) => CheckVerdict::failure(
            error.to_string(),
            "check --gateway-admin, --admin-listen of the gateway, and network policies on the way",
        ),
        Ok(response) if response.status.is_success() => {
            CheckVerdict::ok(format!("{name}/readyz is answered 200"))
        }
        Ok(response) => {
            // A gateway has a line for each pinned resource, of which only the first ones are reported.
            let lines = lines_of(&response.body);
            let (failed, others): (Vec<_>, Vec<_>) =
                lines.into_iter().partition(|line| line.starts_with("[-]"));
            CheckVerdict::failure(
                format!("{name}/readyz is answered {}", response.status.as_u16()),
                "the lines above say what the gateway waits for: docs/TROUBLESHOOTING.md, \"It is not ready\"",
            )
            .with_details(failed.into_iter().chain(others))
        }
    }
}

async fn metrics(client: &Client, name: &str) -> CheckVerdict {
    let hint = "check that --gateway-admin is the admin port of a gateway, and who else scrapes it";
    match read_long(client, "/metrics").await {
        Err(error) => CheckVerdict::failure(error.to_string(), hint),
        Ok(response) if response.status.is_success() => {
            let lines = response.body.split(|byte| *byte == b'\n');
            let own = lines.filter(|line| line.starts_with(PREFIX.as_bytes()));
            match own.count() {
                0 => CheckVerdict::failure(
                    format!("{name}/metrics has no metrics of a gateway"),
                    hint,
                ),
                count => CheckVerdict::ok(counted(count, ("sample", "samples"))),
            }
        }
        Ok(response) => CheckVerdict::failure(
            format!("{name}/metrics is answered {}", response.status.as_u16()),
            hint,
        ),
    }
}
