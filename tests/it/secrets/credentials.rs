//! All credentials that a test uses.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use crate::secrets::forms::{Search, Secret};
use crate::secrets::process::{Authority, Pair, Serving};
use crate::secrets::upstream::failures;

pub(crate) struct Credentials {
    /// The gateway's own.
    pub(crate) gateway: String,
    /// Of a user who may read everything.
    pub(crate) good: String,
    /// Of the same user, but one that tells when it expires.
    pub(crate) expiring: String,
    /// Of nobody.
    pub(crate) bad: String,
    /// Of the same user, one for each way in which reviews fail.
    pub(crate) unlucky: Vec<String>,
    password: String,
    /// The password behind `Basic`.
    pub(crate) basic: String,
    pub(crate) client: Pair,
    pub(crate) proxy: Pair,
    pub(crate) stranger: Pair,
}

/// Letters and digits that stand nowhere else.
pub(crate) fn random_text() -> String {
    let mut bytes = [0; 48];
    aws_lc_rs::rand::fill(&mut bytes).unwrap();
    let letters = b"abcdefghijklmnopqrstuvwxyz012345";
    bytes
        .iter()
        .map(|byte| char::from(letters[usize::from(byte % 32)]))
        .collect()
}

impl Credentials {
    pub(crate) fn new(clients: &Authority, proxies: &Authority) -> Self {
        let claims = json!({"exp": 4_102_444_800_u32, "jti": random_text()}).to_string();
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let claims = URL_SAFE_NO_PAD.encode(claims);
        let password = random_text();
        Self {
            gateway: random_text(),
            good: random_text(),
            expiring: format!("{head}.{claims}.{}", random_text()),
            bad: random_text(),
            unlucky: failures().iter().map(|_| random_text()).collect(),
            basic: STANDARD.encode(format!("user:{password}")),
            password,
            client: clients.sign("carl"),
            proxy: proxies.sign("aggregator"),
            stranger: Authority::new("strangers").sign("carl"),
        }
    }

    /// Looks for all of them, and for the key of a server.
    pub(crate) fn search(&self, serving: &Serving) -> Search {
        // What begins like every token of its kind is no secret.
        let (_, expiring) = self.expiring.split_once('.').unwrap();
        let (claims, signature) = expiring.split_once('.').unwrap();
        let mut secrets: Vec<Secret> = [
            ("the gateway's token", self.gateway.as_str()),
            ("the good token", &self.good),
            ("a token's claims", &claims[16..]),
            ("a token's signature", signature),
            ("the bad token", &self.bad),
            ("the password", &self.password),
            ("the encoded password", &self.basic[8..]),
        ]
        .map(|(name, text)| Secret::new(name, text.as_bytes()))
        .into();
        for (failure, token) in failures().iter().zip(&self.unlucky) {
            let name = format!("the token of {failure:?}");
            secrets.push(Secret::new(name, token.as_bytes()));
        }
        for (name, pair) in [
            ("the gateway's key", &serving.pair),
            ("the client's key", &self.client),
            ("the proxy's key", &self.proxy),
            ("the stranger's key", &self.stranger),
        ] {
            secrets.push(Secret::new(name, &pair.secret()));
        }
        Search::new(&secrets)
    }
}
