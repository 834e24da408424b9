"""A stand-in gateway that tests the trust suite itself (GATEWAY=relay): it forwards bytes, without client certificates.
RELAY_FAULT=admin gives every request the administrator's token, RELAY_FAULT=shared gives one caller's responses to all that
send the same request; the suite must detect both.

python3 -m suites.trust.relay SERVER_PORT CA TOKEN_FILE CERTIFICATE KEY LISTEN_PORT"""
import os
import socket
import ssl
import sys
import threading
from pathlib import Path

FAULT = os.environ.get("RELAY_FAULT", "")


class Relay:
    def __init__(self, server_port, ca, token, certificate, key):
        self.server_port, self.token, self.answers = server_port, token, {}
        self.to_server = ssl.create_default_context(cafile=ca)
        self.to_clients = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.to_clients.load_cert_chain(certificate, key)

    def serve(self, client):
        try:
            with self.to_clients.wrap_socket(client, server_side=True) as client:
                self.relay(client)
        except OSError:
            pass

    def relay(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(65536)
            if not more:
                return
            head += more
        first, rest = head.split(b"\r\n\r\n", 1)
        lines = first.split(b"\r\n")
        if FAULT == "admin":
            lines = [line for line in lines if not line.lower().startswith(b"authorization:")] + [b"Authorization: Bearer " + self.token]
        sharing = FAULT == "shared" and lines[0].startswith(b"GET ") and b"watch=" not in lines[0]
        if sharing and lines[0] in self.answers:
            client.sendall(self.answers[lines[0]])
            return
        if sharing:
            lines = [line for line in lines if not line.lower().startswith(b"connection:")] + [b"Connection: close"]
        with self.to_server.wrap_socket(socket.create_connection(("127.0.0.1", self.server_port)), server_hostname="127.0.0.1") as server:
            server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
            threading.Thread(target=copy, args=(client, server), daemon=True).start()
            answer = copy(server, client)
            if sharing and b" 200 " in answer[:20]:
                self.answers[lines[0]] = answer


def copy(source, sink):
    """Forwards until the end; returns the forwarded bytes."""
    passed = b""
    try:
        while data := source.recv(65536):
            passed += data
            sink.sendall(data)
    except (OSError, ValueError):
        pass
    try:
        socket.socket.shutdown(sink, socket.SHUT_RDWR)
    except OSError:
        pass
    return passed


def main():
    server_port, ca, token_file, certificate, key, port = sys.argv[1:]
    relay = Relay(int(server_port), ca, Path(token_file).read_text().strip().encode(), certificate, key)
    with socket.create_server(("127.0.0.1", int(port)), backlog=200) as listener:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=relay.serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main()
