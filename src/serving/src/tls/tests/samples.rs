//! The files of a server, for tests.

use std::path::PathBuf;

pub(crate) use kube_fanout_upstream::samples::certificates::{
    Authority, Folder, Pair, client, connector, named,
};

use crate::tls::{PairFiles, TlsFiles};

/// Writes a certificate for `localhost` to the folder, and returns a server's files with these authorities of client certificates.
pub(crate) fn server_files(folder: &Folder, client_authorities: Vec<PathBuf>) -> TlsFiles {
    let pair = Authority::new("servers").sign("localhost");
    TlsFiles {
        default: PairFiles {
            cert: folder.write("tls.crt", pair.cert_pem()),
            key: folder.write("tls.key", pair.key_pem()),
        },
        named: Vec::new(),
        client_authorities,
    }
}
