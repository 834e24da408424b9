//! An API server whose responses are prepared in advance: one list in pages or as a stream, in one encoding, over HTTP/1.1.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use kube_fanout::resource::protobuf::{answer_end, answer_head, frame_around, type_meta};
use kube_fanout::resource::wire::put_bytes;

use super::typical::{self, Size};

/// Items per page, as the gateway requests them.
pub(crate) const PAGE_LEN: usize = 500;
/// Resource version of the list.
const VERSION: &str = "2000000";
/// Bytes per chunk of the stream: what a server writes at once when much data is ready.
const CHUNK_LEN: usize = 32 << 10;

/// The list that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) streamed: bool,
    pub(crate) protobuf: bool,
    pub(crate) pages: usize,
}

impl Case {
    /// The case as one number, for a command line; [`Case::of`] is the inverse.
    pub(crate) fn number(self) -> usize {
        self.pages << 2 | usize::from(self.protobuf) << 1 | usize::from(self.streamed)
    }

    pub(crate) const fn of(number: usize) -> Self {
        Self {
            streamed: number & 1 == 1,
            protobuf: number & 2 == 2,
            pages: number >> 2,
        }
    }

    pub(crate) const fn objects(self) -> usize {
        self.pages * PAGE_LEN
    }

    const fn content_type(self) -> &'static str {
        if self.protobuf {
            "application/vnd.kubernetes.protobuf"
        } else {
            "application/json"
        }
    }

    /// The path that requests the list, or the given page of it.
    pub(crate) fn path(self, page: usize) -> String {
        let query = match (self.streamed, page) {
            (true, _) => "watch=true".to_owned(),
            (false, 0) => "limit=500".to_owned(),
            (false, _) => format!("continue={page}&limit=500"),
        };
        format!("/api/v1/pods?{query}")
    }

    /// All responses, heads included.
    fn answers(self) -> Vec<Vec<u8>> {
        if self.streamed {
            return vec![self.stream()];
        }
        (0..self.pages).map(|page| self.page(page)).collect()
    }

    fn page(self, page: usize) -> Vec<u8> {
        let next = page + 1;
        let token = if next < self.pages {
            next.to_string()
        } else {
            String::new()
        };
        let range = page * PAGE_LEN..next * PAGE_LEN;
        let body = if self.protobuf {
            let mut list = Vec::new();
            let mut metadata = Vec::new();
            put_bytes(&mut metadata, 2, VERSION.as_bytes());
            put_bytes(&mut metadata, 3, token.as_bytes());
            put_bytes(&mut list, 1, &metadata);
            range.for_each(|index| put_bytes(&mut list, 2, &typical::message(index)));
            let head = answer_head(&type_meta("v1", "PodList"), list.len());
            [&*head, &list, answer_end()].concat()
        } else {
            let items: Vec<_> = range
                .map(|index| typical::item(index, Size::of(index)))
                .collect();
            format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{VERSION}","continue":"{token}"}},"items":[{}]}}"#,
                items.join(",")
            )
            .into_bytes()
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            self.content_type(),
            body.len()
        );
        [head.as_bytes(), &body].concat()
    }

    fn stream(self) -> Vec<u8> {
        let mut out = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n",
            self.content_type()
        )
        .into_bytes();
        let mut chunk = Vec::new();
        for index in 0..self.objects() {
            chunk.extend_from_slice(&self.event(index));
            if chunk.len() >= CHUNK_LEN {
                put_chunk(&mut out, &mut chunk);
            }
        }
        chunk.extend_from_slice(&self.marker());
        put_chunk(&mut out, &mut chunk);
        out
    }

    fn event(self, index: usize) -> Vec<u8> {
        if self.protobuf {
            return frame_around("ADDED", &typical::pod_type(), &typical::message(index)).0;
        }
        let object = typical::object(index, Size::of(index));
        format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").into_bytes()
    }

    fn marker(self) -> Vec<u8> {
        const NAME: &str = "k8s.io/initial-events-end";
        if !self.protobuf {
            return format!(
                "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{VERSION}\",\"annotations\":{{\"{NAME}\":\"true\"}}}}}}}}\n"
            )
            .into_bytes();
        }
        let (mut annotation, mut metadata, mut pod) = (Vec::new(), Vec::new(), Vec::new());
        put_bytes(&mut annotation, 1, NAME.as_bytes());
        put_bytes(&mut annotation, 2, b"true");
        put_bytes(&mut metadata, 6, VERSION.as_bytes());
        put_bytes(&mut metadata, 12, &annotation);
        put_bytes(&mut pod, 1, &metadata);
        frame_around("BOOKMARK", &typical::pod_type(), &pod).0
    }
}

fn put_chunk(out: &mut Vec<u8>, chunk: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
    out.append(chunk);
    out.extend_from_slice(b"\r\n");
}

/// Listens; each connection has a thread of its own, which ends with it or with the process. Returns the address and the total length of
/// all responses.
pub(crate) fn serve(case: Case) -> io::Result<(SocketAddr, usize)> {
    let answers = Arc::new(case.answers());
    let len = answers.iter().map(Vec::len).sum();
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let answers = Arc::clone(&answers);
            // A client that disconnects is not a failure.
            std::thread::spawn(move || drop(answer(case, &client, &answers)));
        }
    });
    Ok((address, len))
}

fn answer(case: Case, mut client: &TcpStream, answers: &[Vec<u8>]) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut requests = BufReader::new(client);
    let mut line = String::new();
    let mut page = 0;
    let mut is_wanted = false;
    loop {
        line.clear();
        if requests.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.starts_with("GET ") {
            // A watch that follows a paged list gets no response: there are no events.
            is_wanted = line.contains("watch=true") == case.streamed;
            page = line
                .split_once("continue=")
                .and_then(|(_, rest)| rest.split(['&', ' ']).next()?.parse().ok())
                .unwrap_or(0);
        }
        if line == "\r\n" && is_wanted && page < answers.len() {
            client.write_all(&answers[page])?;
        }
    }
}

/// Requests the responses one after the other and drops them: no client can be faster.
pub(crate) fn receive(case: Case, address: SocketAddr, len: usize) -> io::Result<()> {
    let mut server = TcpStream::connect(address)?;
    server.set_nodelay(true)?;
    let mut buffer = vec![0; 256 << 10];
    let mut left = len;
    for page in 0..if case.streamed { 1 } else { case.pages } {
        let path = case.path(page);
        server.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())?;
        let mut answer = 0;
        let mut whole = if case.streamed { len } else { usize::MAX };
        while answer < whole {
            let count = server.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if answer == 0 && !case.streamed {
                whole = answer_len(&buffer[..count]);
            }
            answer += count;
        }
        left -= answer;
    }
    debug_assert_eq!(left, 0, "all answers came");
    Ok(())
}

/// The response's length according to its head, which arrives in one read.
fn answer_len(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(&head[..head.len().min(512)]);
    let end = text.find("\r\n\r\n").map_or(0, |at| at + 4);
    let len = text
        .split_once("content-length: ")
        .and_then(|(_, rest)| rest.split('\r').next()?.parse::<usize>().ok());
    end + len.unwrap_or(0)
}
