"""A TCP proxy that shows which watches a client asked for over HTTP/1.1, and whether it got them compressed."""
import socket
import threading


class Recorder:
    """`port` leads to ENDPOINT, which does not speak TLS."""

    def __init__(self, endpoint):
        self.endpoint, self.asked, self.told = endpoint, bytearray(), bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:  # closed
                return
            far = self.endpoint.connect(None)
            for source, to, seen in ((near, far, self.asked), (far, near, self.told)):
                threading.Thread(target=copy, args=(source, to, seen), daemon=True).start()

    def watches(self):
        """The number of watches of config maps that were asked for."""
        lines = bytes(self.asked).split(b"\r\n")
        return sum(line.startswith(b"GET /api/v1/configmaps?") and b"watch=" in line for line in lines)

    def is_compressed(self):
        """Lists of this suite are too short for it, so what is compressed is a watch."""
        return b"content-encoding: gzip" in bytes(self.told).lower()

    def close(self):
        self.listener.close()


def copy(source, to, seen):
    try:
        while data := source.recv(1 << 16):
            seen += data
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:  # one side has ended, so the other does
        for one in (source, to):
            one.close()
