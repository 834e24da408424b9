//! The assessment as one document, which the table, the page and the JSON show.

use serde::Serialize;

use super::assumptions::GatewayFlow;
use super::client::{CredentialKind, MoveMethod};
use super::columns::{AssessColumn, columns};
use super::estimate::{Estimate, EstimateRow};

/// Changes when a field changes its meaning or goes.
const DOCUMENT_VERSION: u32 = 1;
const MEGABYTE: f64 = 1e6;

/// The document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AssessDocument {
    version: u32,
    program: &'static str,
    /// Time between the scrapes.
    pub(super) window_seconds: f64,
    pub(super) servers: usize,
    /// Time that the audit logs cover.
    pub(super) audit_seconds: Option<f64>,
    pub(super) gateways: u32,
    pub(super) encodings: u32,
    pub(super) columns: Vec<AssessColumn>,
    pub(super) totals: AssessTotals,
    pub(super) rows: Vec<AssessRow>,
    /// What was left out, and what is uncertain.
    pub(super) notes: Vec<String>,
}

/// The settings and circumstances of an assessment.
pub(super) struct AssessFrame {
    pub(super) window_seconds: f64,
    pub(super) servers: usize,
    pub(super) audit_seconds: Option<f64>,
    pub(super) gateways: u32,
    pub(super) encodings: u32,
}

/// All rows together.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AssessTotals {
    /// What the API servers do for lists and watches now: measured.
    pub(super) now: FlowDocument,
    /// What gateways take over: calculated.
    pub(super) taken: FlowDocument,
    /// What they ask in its place: calculated.
    pub(super) asked: FlowDocument,
    /// What is saved: calculated.
    pub(super) net: FlowDocument,
    /// What no line of the audit logs explains, a part of `now`: calculated.
    pub(super) unexplained: Option<FlowDocument>,
    /// Cores: a bound.
    pub(super) cpu_at_most: f64,
}

/// A flow as the document writes it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlowDocument {
    pub(super) watches: f64,
    pub(super) requests_per_second: f64,
    pub(super) events_per_second: f64,
    pub(super) megabytes_per_second: f64,
}

/// One row: its members are the columns.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AssessRow {
    pub(super) order: Option<usize>,
    pub(super) user: String,
    pub(super) credential: Option<CredentialKind>,
    pub(super) agent: String,
    pub(super) resource: String,
    pub(super) watches: f64,
    pub(super) lists_per_second: f64,
    pub(super) events_per_second: f64,
    pub(super) megabytes_per_second: f64,
    pub(super) net_requests_per_second: f64,
    pub(super) net_events_per_second: f64,
    pub(super) cpu_at_most: f64,
    pub(super) how: MoveMethod,
    pub(super) risk: u8,
    pub(super) reason: &'static str,
}

impl AssessDocument {
    pub(super) fn new(estimate: &Estimate, frame: &AssessFrame, notes: Vec<String>) -> Self {
        let net = estimate.taken.minus(&estimate.asked);
        let totals = AssessTotals {
            now: (&estimate.now).into(),
            taken: (&estimate.taken).into(),
            asked: (&estimate.asked).into(),
            net: (&net).into(),
            unexplained: estimate.unexplained.as_ref().map(Into::into),
            cpu_at_most: estimate.cpu_at_most,
        };
        Self {
            version: DOCUMENT_VERSION,
            program: env!("CARGO_PKG_VERSION"),
            window_seconds: frame.window_seconds,
            servers: frame.servers,
            audit_seconds: frame.audit_seconds,
            gateways: frame.gateways,
            encodings: frame.encodings,
            columns: columns(frame.audit_seconds.is_some()),
            totals,
            rows: estimate.rows.iter().map(Into::into).collect(),
            notes,
        }
    }

    pub(super) fn json(&self) -> String {
        // Strings and numbers can always be written.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl From<&GatewayFlow> for FlowDocument {
    fn from(flow: &GatewayFlow) -> Self {
        Self {
            watches: flow.watches,
            requests_per_second: flow.requests,
            events_per_second: flow.events,
            megabytes_per_second: flow.bytes / MEGABYTE,
        }
    }
}

impl From<&EstimateRow> for AssessRow {
    fn from(row: &EstimateRow) -> Self {
        let net = row.net();
        let client = row.client.as_ref();
        let is_forwarded = row.forward_reason.is_some();
        Self {
            order: row.order,
            user: client.map_or_else(|| "all clients".to_owned(), |one| one.user.to_string()),
            credential: client.map(|client| client.credential),
            agent: client.map(|one| one.agent.to_string()).unwrap_or_default(),
            resource: row
                .resource
                .as_ref()
                .map_or_else(|| "all others".to_owned(), ToString::to_string),
            watches: row.now.watches,
            lists_per_second: row.lists,
            events_per_second: row.now.events,
            megabytes_per_second: row.now.bytes / MEGABYTE,
            net_requests_per_second: net.requests,
            net_events_per_second: net.events,
            cpu_at_most: row.cpu_at_most,
            how: match is_forwarded {
                true => MoveMethod::None,
                false => row.class.method(),
            },
            risk: if is_forwarded { 0 } else { row.class.risk() },
            reason: row.forward_reason.unwrap_or_else(|| row.class.reason()),
        }
    }
}

impl AssessRow {
    /// The texts of its columns, in their order.
    pub(super) fn cells(&self) -> Vec<String> {
        use super::figures::figure;
        let credential = self.credential.map_or("", CredentialKind::as_str);
        vec![
            self.order
                .map(|order| order.to_string())
                .unwrap_or_default(),
            self.user.clone(),
            credential.to_owned(),
            self.agent.clone(),
            self.resource.clone(),
            figure(self.watches),
            figure(self.lists_per_second),
            figure(self.events_per_second),
            figure(self.megabytes_per_second),
            figure(self.net_requests_per_second),
            figure(self.net_events_per_second),
            figure(self.cpu_at_most),
            self.how.as_str().to_owned(),
            self.risk.to_string(),
            self.reason.to_owned(),
        ]
    }
}
