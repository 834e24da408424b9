//! Files with secrets that the gateway cannot use: it says what is wrong with them, never what stands in them.

use std::process::{Command, Stdio};

use crate::secrets::credentials::random_text;
use crate::secrets::forms::{Search, Secret};
use crate::secrets::process::{Folder, Serving};

/// What the gateway says when it does not start with these flags.
fn told(folder: &Folder, flags: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-fanout"));
    let output = command
        .arg("serve")
        .args(flags)
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(["--log-level", "trace"])
        .current_dir(&folder.0)
        .env("RUST_BACKTRACE", "full")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&told);
    assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
    told
}

#[test]
fn nothing_is_told_of_a_kubeconfig_that_cannot_be_used() {
    let folder = Folder::new("kubeconfig");
    let token = random_text();
    let search = Search::new(&[Secret::new("token", token.as_bytes())]);
    let user = |user: String| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: own\n\
             contexts: [{{name: own, context: {{cluster: own, user: own}}}}]\n\
             clusters: [{{name: own, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             users: [{{name: own, user: {user}}}]\n"
        )
    };
    for text in [
        token.clone(),
        format!("{token}: {{"),
        user(token.clone()),
        user(format!("{{token: {token}")),
        user(format!("{{token: [{token}]}}")),
        user(format!("{{username: a, password: {{{token}: b}}}}")),
        user(format!("{{exec: {token}}}")),
        user(format!("{{auth-provider: {token}}}")),
        user(format!(
            "{{client-certificate-data: {token}, client-key-data: {token}}}"
        )),
        user(format!("{{token: \"{token}\\n\"}}")),
        user(format!("{{token: {token}}}")).replace("current-context: own", "current-context: x"),
        user(format!("{{token: {token}, token: {token}}}")),
    ] {
        folder.write("kubeconfig", &text);
        let told = told(&folder, &["--plain-http", "--kubeconfig", "kubeconfig"]);
        assert_eq!(search.found_in(&told), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn nothing_is_told_of_keys_that_cannot_be_used() {
    let folder = Folder::new("keys");
    let serving = Serving::new(&folder, "own");
    let other = Serving::new(&folder, "other");
    let pem = serving.pair.key.serialize_pem();
    let search = Search::new(&[
        Secret::new("key", &serving.pair.secret()),
        Secret::new("other key", &other.pair.secret()),
    ]);
    folder.write("cut.key", &pem[..pem.len() - 60]);
    folder.write("misspelt.key", &pem.replace("PRIVATE KEY", "PRIVATE"));
    folder.write("odd.key", &pem.replace('M', "*"));
    folder.write("bare.key", &pem.replace("-----", ""));
    for (cert, key) in [
        ("own.crt", "cut.key"),
        ("own.crt", "misspelt.key"),
        ("own.crt", "odd.key"),
        ("own.crt", "bare.key"),
        ("own.crt", "other.key"),
        ("own.key", "own.key"),
        ("own.key", "own.crt"),
    ] {
        let told = told(&folder, &["--tls-cert", cert, "--tls-key", key]);
        assert_eq!(search.found_in(&told), Vec::<String>::new(), "{cert} {key}");
    }
}
