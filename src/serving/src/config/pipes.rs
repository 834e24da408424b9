//! Files that are pipes, such as those of `<(command)`: a pipe can be read only once, and most files are read several times, so each is
//! copied into memory before anything else reads it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::{
    ApiserverSettings, CheckSettings, InjectSettings, ListenTransport, ProcessTask, ServeSettings,
    Settings, SettingsError, UpstreamSource,
};

/// Longer than any file of certificates.
const LEN_MAX: u64 = 16 << 20;
/// A pipe may stay silent for ever.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The copies, which settings name in place of pipes for as long as this is kept.
#[derive(Debug, Default)]
pub struct PipeCopies(Vec<(PathBuf, OwnedFd)>);

impl Settings {
    /// Copies what comes through pipes, and names the copies instead. Blocks.
    ///
    /// # Errors
    /// A pipe that cannot be read in time.
    pub fn keep_pipes(&mut self) -> Result<PipeCopies, SettingsError> {
        let mut copies = PipeCopies::default();
        for path in files_of_task(&mut self.task) {
            copies.keep(path)?;
        }
        Ok(copies)
    }
}

impl PipeCopies {
    /// Two settings may name the same pipe.
    fn keep(&mut self, path: &mut PathBuf) -> Result<(), SettingsError> {
        let is_pipe = std::fs::metadata(&*path).is_ok_and(|found| found.file_type().is_fifo());
        if !is_pipe {
            return Ok(());
        }
        let known = self.0.iter().find(|(known, _)| known == path);
        let copy = match known {
            Some((_, copy)) => path_of(copy),
            None => {
                let copy = copied(path).map_err(|source| SettingsError::Pipe {
                    path: path.clone(),
                    reason: source.to_string(),
                })?;
                let at = path_of(&copy);
                self.0.push((path.clone(), copy));
                at
            }
        };
        *path = copy;
        Ok(())
    }
}

fn path_of(copy: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", copy.as_raw_fd()).into()
}

fn copied(path: &Path) -> io::Result<OwnedFd> {
    let (sender, receiver) = sync_channel(1);
    let pipe = path.to_owned();
    // Detached: opening and reading may block for ever.
    std::thread::Builder::new().spawn(move || {
        let _ = sender.send(read(&pipe));
    })?;
    let read = receiver.recv_timeout(READ_TIME_MAX);
    let text = read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let mut copy = File::from(memfd_create("pipe", MemfdFlags::CLOEXEC)?);
    copy.write_all(&text)?;
    Ok(copy.into())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(LEN_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LEN_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The files that a command reads.
fn files_of_task(task: &mut ProcessTask) -> Vec<&mut PathBuf> {
    match task {
        ProcessTask::Serve(settings) => files_of_serve(settings),
        ProcessTask::ConfigCheck(settings) => files_of_serve(settings),
        ProcessTask::Check(settings) => {
            let CheckSettings { serve, gateway, .. } = &mut **settings;
            let gateway = gateway.iter_mut();
            let gateway =
                gateway.flat_map(|gateway| [&mut gateway.ca_file, &mut gateway.token_file]);
            let mut files = files_of_serve(serve);
            files.extend(gateway.flatten());
            files
        }
        ProcessTask::Apiserver(settings) => files_of_apiserver(settings),
        ProcessTask::Demo(settings) => files_of_apiserver(&mut settings.apiserver),
        ProcessTask::Serving(request) => request.token_file.iter_mut().collect(),
        ProcessTask::Inject(InjectSettings {
            upstream: UpstreamSource::Kubeconfig { path, .. },
            ..
        }) => vec![path],
        // `assess` reads each of its files once.
        ProcessTask::CheckList(_)
        | ProcessTask::Print(_)
        | ProcessTask::Top(_)
        | ProcessTask::Inject(_)
        | ProcessTask::Assess(_) => Vec::new(),
    }
}

fn files_of_serve(settings: &mut ServeSettings) -> Vec<&mut PathBuf> {
    let mut files = files_of_transport(&mut settings.transport);
    if let UpstreamSource::Kubeconfig { path, .. } = &mut settings.upstream {
        files.push(path);
    }
    files.extend(&mut settings.auth.client_ca);
    let front_proxy = settings.auth.front_proxy.iter_mut();
    files.extend(front_proxy.map(|proxy| &mut proxy.client_ca));
    files.extend(settings.audit.iter_mut().map(|audit| &mut audit.policy));
    let state = settings.state.iter_mut();
    files.extend(state.filter_map(|state| state.key_file.as_mut()));
    let handover = settings.handover.iter_mut();
    let handover = handover.flat_map(|from| [&mut from.ca_file, &mut from.token_file]);
    files.extend(handover.flatten());
    files
}

fn files_of_apiserver(settings: &mut ApiserverSettings) -> Vec<&mut PathBuf> {
    let mut files = files_of_transport(&mut settings.transport);
    if let Some(auth) = &mut settings.auth {
        files.extend(&mut auth.token_file);
        files.extend(&mut auth.client_ca);
        files.extend(auth.front_proxy.iter_mut().map(|(path, _)| path));
    }
    files
}

fn files_of_transport(transport: &mut ListenTransport) -> Vec<&mut PathBuf> {
    let ListenTransport::Tls { cert, key, sni } = transport else {
        return Vec::new();
    };
    let named = sni.iter_mut();
    let named = named.flat_map(|pair| [&mut pair.cert, &mut pair.key]);
    [cert, key].into_iter().chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_through_a_pipe_can_be_read_again() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a-token\n").unwrap();
        drop(writer);
        let reader: OwnedFd = reader.into();
        let mut copies = PipeCopies::default();
        // Two settings name it.
        for _ in 0..2 {
            let mut path = path_of(&reader);
            copies.keep(&mut path).unwrap();
            for _ in 0..2 {
                assert_eq!(std::fs::read_to_string(&path).unwrap(), "a-token\n");
            }
            let copy = path.clone();
            copies.keep(&mut path).unwrap();
            assert_eq!(path, copy, "a copy is no pipe");
        }
        assert_eq!(copies.0.len(), 1);
    }
}
