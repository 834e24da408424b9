//! Checks of the gateway's admin port.

use super::catalogue as checks;
use super::checklist::Checklist;
use super::handshake::name_of;
use super::requests::{get, lines_of};
use super::verdict::CheckVerdict;
use crate::config::{CheckCategory, CheckSettings};
use crate::error_chain::one_line;
use crate::upstream::client::{Client, ConnectSource};

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
            return;
        }
    };
    list.make(&checks::ADMIN_READY, ready(&client, &name)).await;
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
