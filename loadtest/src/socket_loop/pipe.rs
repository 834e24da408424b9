//! The bytes of one client of the loop, plain or TLS: they leave with one system call, or wait for space in the socket.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use anyhow::Result;
use mio::net::TcpStream;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

pub struct Pipe {
    /// For the poller.
    pub socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
    writable: bool,
}

impl Pipe {
    /// A pipe over an accepted socket.
    pub fn new(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Result<Self> {
        let tls = match tls {
            None => None,
            Some(config) => {
                let mut tls = Box::new(ServerConnection::new(config.clone())?);
                // The loop bounds the buffer: it adds nothing before the last piece has been sent.
                tls.set_buffer_limit(None);
                Some(tls)
            }
        };
        Ok(Self {
            socket,
            tls,
            writable: true,
        })
    }

    /// Records that the poller has reported space.
    pub fn has_room(&mut self) {
        self.writable = true;
    }

    /// Whether anything can be sent now.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Appends received bytes; false when the client is gone.
    pub fn read(&mut self, into: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 2048];
        loop {
            let got = match &mut self.tls {
                None => self.socket.read(&mut buffer),
                Some(tls) => tls.read_tls(&mut self.socket),
            };
            let len = match got {
                Ok(0) => return false,
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            let Some(tls) = &mut self.tls else {
                into.extend_from_slice(&buffer[..len]);
                continue;
            };
            let Ok(state) = tls.process_new_packets() else {
                return false;
            };
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            if tls.reader().read_exact(&mut plain).is_err() {
                return false;
            }
            into.extend_from_slice(&plain);
            // Sends the handshake's answers.
            if self.flush().is_err() {
                return false;
            }
        }
    }

    /// Sends some of `bytes`, or none if the socket is full; returns the number.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_all(&[IoSlice::new(bytes)])
    }

    /// Like [`Self::send`], for several slices, with one system call.
    pub fn send_all(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return match self.socket.write_vectored(pieces) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    Ok(0)
                }
                result => result,
            };
        };
        if tls.wants_write() {
            self.flush()?;
            return Ok(0);
        }
        let mut len = 0;
        for piece in pieces {
            tls.writer().write_all(piece)?;
            len += piece.len();
        }
        self.flush()?;
        Ok(len)
    }

    /// Sends encrypted bytes that did not fit before.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while self.writable && tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A new certificate for `host` in PEM, and a server configuration with it.
pub fn self_signed(host: &str) -> Result<(String, Arc<ServerConfig>)> {
    let made = rcgen::generate_simple_self_signed([host.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = [b"h2".to_vec(), b"http/1.1".to_vec()].into();
    Ok((made.cert.pem(), Arc::new(config)))
}
