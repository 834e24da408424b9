//! All credentials that a test uses. Each is random, so that any occurrence in the output is a leak.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use crate::secrets::forms::{Search, Secret};
use crate::secrets::process::{Authority, Pair, Serving};
use crate::secrets::upstream::failures;

/// Tokens, a password and certificates.
pub(crate) struct Credentials {
    /// The gateway's own token.
    pub(crate) gateway: String,
    /// The token of a user who may do everything.
    pub(crate) good: String,
    /// A token of the same user in the form of a JWT that states when it expires.
    pub(crate) expiring: String,
    /// A token that the API server does not accept.
    pub(crate) bad: String,
    /// Tokens of the same user, one for each way in which reviews fail.
    pub(crate) for_failures: Vec<String>,
    password: String,
    /// The user and the password as encoded for `Authorization: Basic`.
    pub(crate) basic: String,
    /// A client certificate of a trusted authority.
    pub(crate) client: Pair,
    /// The client certificate of a trusted front proxy.
    pub(crate) proxy: Pair,
    /// A client certificate of an unknown authority.
    pub(crate) stranger: Pair,
}

/// 48 random letters and digits.
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
            for_failures: failures().iter().map(|_| random_text()).collect(),
            basic: STANDARD.encode(format!("user:{password}")),
            password,
            client: clients.sign("carl"),
            proxy: proxies.sign("aggregator"),
            stranger: Authority::new("strangers").sign("carl"),
        }
    }

    /// A search for all credentials, and for the private key of a server.
    pub(crate) fn search(&self, serving: &Serving) -> Search {
        // The header of a JWT, the start of its claims and the start of the encoded user name are not secret.
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
        for (failure, token) in failures().iter().zip(&self.for_failures) {
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
