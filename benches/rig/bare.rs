//! The reference server: one `write` of a prepared HTTP chunk for each client and step, and no other work except encryption where it is
//! requested.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use crate::order::{self, LINE_LEN, Order};
use crate::{child, tls};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Serves from `threads` threads, each with its share of the clients, until the parent process ends.
pub(crate) fn run(threads: usize, is_encrypted: bool) -> io::Result<()> {
    child::end_with_parent();
    let tls = is_encrypted.then(tls::server).transpose()?;
    let (mut clients, mut controls) = (Vec::new(), Vec::new());
    let (mut addresses, mut control_addresses) = (Vec::new(), Vec::new());
    for _ in 0..threads {
        let (client, control) = (
            TcpListener::bind(("127.0.0.1", 0))?,
            TcpListener::bind(("127.0.0.1", 0))?,
        );
        addresses.push(client.local_addr()?);
        control_addresses.push(control.local_addr()?);
        clients.push(client);
        controls.push(control);
    }
    addresses.append(&mut control_addresses);
    child::report(&addresses);
    let threads: Vec<_> = clients
        .into_iter()
        .zip(controls)
        .map(|(client, control)| {
            let tls = tls.clone();
            std::thread::spawn(move || obey(&client, &control, tls))
        })
        .collect();
    for thread in threads {
        // Each thread ends when the parent closes the connection.
        let _ = thread.join();
    }
    Ok(())
}

fn obey(
    clients: &TcpListener,
    control: &TcpListener,
    tls: Option<Arc<ServerConfig>>,
) -> io::Result<()> {
    let (one, sixteen) = (chunk(1), chunk(order::MANY));
    let (mut control, _) = control.accept()?;
    let mut open = Vec::new();
    let mut word = [0; order::LEN];
    loop {
        control.read_exact(&mut word)?;
        let piece = match Order::of(word)? {
            Order::Accept(count) => {
                for _ in 0..count {
                    open.push(accept(clients, tls.clone())?);
                }
                continue;
            }
            Order::One => &one,
            Order::Batch | Order::Singly => &sixteen,
        };
        for client in &mut open {
            client.write_all(piece)?;
        }
    }
}

/// A client's connection.
struct Client {
    stream: TcpStream,
    session: Option<Box<ServerConnection>>,
}

impl Client {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            return self.stream.write_all(bytes);
        };
        session.writer().write_all(bytes)?;
        while session.wants_write() {
            session.write_tls(&mut self.stream)?;
        }
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.read(bytes),
            Some(session) => rustls::Stream::new(&mut **session, &mut self.stream).read(bytes),
        }
    }
}

fn accept(clients: &TcpListener, tls: Option<Arc<ServerConfig>>) -> io::Result<Client> {
    let (stream, _) = clients.accept()?;
    stream.set_nodelay(true)?;
    let session = tls.map(ServerConnection::new).transpose();
    let session = session.map_err(io::Error::other)?.map(Box::new);
    let mut client = Client { stream, session };
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut some = [0; 1_024];
        let len = client.read(&mut some)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&some[..len]);
    }
    client.write_all(HEAD)?;
    Ok(client)
}

fn chunk(events: usize) -> Vec<u8> {
    let len = LINE_LEN * events;
    let lines: Vec<u8> = (0..events).flat_map(|_| order::line(0)).collect();
    [format!("{len:x}\r\n").as_bytes(), &lines, b"\r\n"].concat()
}
