//! A token that comes through a pipe, such as `<(kubectl create token …)`: it can be read only once, and is needed for each connection.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::blocking::spawn_blocking;
use crate::config::CheckSettings;

/// Tokens are shorter.
const TOKEN_LEN_MAX: u64 = 64 << 10;
/// A pipe may stay silent for ever.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The settings, with a copy of the token in memory in place of a pipe. The copy lives as long as the descriptor.
pub(super) async fn with_kept_token(settings: &CheckSettings) -> (CheckSettings, Option<OwnedFd>) {
    let mut settings = settings.clone();
    let path = settings
        .gateway
        .as_ref()
        .and_then(|gateway| gateway.token_file.clone());
    let Some((path, gateway)) = path.zip(settings.gateway.as_mut()) else {
        return (settings, None);
    };
    let kept = spawn_blocking(move || keep(&path));
    // Whatever fails here fails again, with a message, where the token is used.
    let kept = tokio::time::timeout(READ_TIME_MAX, kept).await;
    let kept = kept
        .ok()
        .and_then(Result::ok)
        .and_then(Result::ok)
        .flatten();
    if let Some(copy) = &kept {
        gateway.token_file = Some(path_of(copy));
    }
    (settings, kept)
}

fn path_of(copy: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", copy.as_raw_fd()).into()
}

/// A copy of what comes through the pipe; `None` for a file.
fn keep(path: &Path) -> io::Result<Option<OwnedFd>> {
    if std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut token = Vec::new();
    let pipe = File::open(path)?;
    pipe.take(TOKEN_LEN_MAX).read_to_end(&mut token)?;
    let mut copy = File::from(memfd_create("token", MemfdFlags::CLOEXEC)?);
    copy.write_all(&token)?;
    Ok(Some(copy.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_from_a_pipe_can_be_read_again() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a-token\n").unwrap();
        drop(writer);
        let reader: OwnedFd = reader.into();
        let copy = keep(&path_of(&reader)).unwrap().unwrap();
        for _ in 0..2 {
            let token = std::fs::read_to_string(path_of(&copy)).unwrap();
            assert_eq!(token, "a-token\n");
        }
        assert!(keep(&path_of(&copy)).unwrap().is_none());
    }
}
