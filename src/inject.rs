//! `kube-fanout inject`: the clients of pods go to gateways by degrees, and all of them back at once (decision 64).
//!
//! The API server injects pods, by the policy of `deploy/inject`, and kube-proxy leads their connections to gateways or API servers. This
//! command only writes what both look at. `names` are those of `deploy/inject`, `api` sends requests, `setup` reads what is there, `plan`
//! says what is missing, without IO; `publisher` carries that out again and again, `status` reports, and `switch` changes percentage and
//! direction. Every action is safe to repeat.

mod api;
mod names;
mod plan;
mod publisher;
mod setup;
mod status;
mod switch;

use crate::config::{InjectSettings, InjectTask};
use crate::error_chain::one_line;
use crate::gateway::connect_source;
use crate::shutdown::Drain;
use crate::upstream::client::Client;
use api::Api;

/// Does what the settings say; returns the text for the user, and whether all is well.
///
/// # Errors
/// If the credentials cannot be used.
pub async fn run(settings: &InjectSettings, drain: Drain) -> Result<(String, bool), String> {
    let client = Client::connect(connect_source(&settings.upstream)).await;
    let api = Api::new(client.map_err(|error| one_line(&error))?);
    let namespace = &settings.namespace;
    Ok(match settings.task {
        InjectTask::Status => status::report(&api, namespace).await,
        InjectTask::Percent(percent) => switch::percent(&api, namespace, percent).await,
        InjectTask::Off => switch::off(&api, namespace).await,
        InjectTask::On => switch::on(&api, namespace).await,
        InjectTask::Publish => {
            publisher::run(&api, namespace, &drain).await;
            (String::new(), true)
        }
    })
}
