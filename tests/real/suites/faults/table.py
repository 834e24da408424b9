"""What was measured, as a line and as a table in Markdown."""
from dataclasses import dataclass, field

from .crowds import LIBRARIES


@dataclass
class Row:
    name: str
    text: str
    upstream: int = 0  # lists that reached the server, of gateways
    forwarded: int = 0  # of clients
    clients: dict = field(default_factory=dict)  # library: lists
    silences: dict = field(default_factory=dict)  # library: seconds
    unwritten: float = 0.0  # the longest time without a write
    equal_after: float = 0.0
    note: str = ""

    def line(self):
        silences = ", ".join(f"{name} {self.silences[name]:.1f}" for name in LIBRARIES)
        lists = ", ".join(f"{name} {count}" for name, count in self.clients.items() if count) or "0"
        forwarded = f" ({self.forwarded} of them forwarded)" if self.forwarded else ""
        return (f"lists upstream {self.upstream}, of clients {lists}{forwarded}; longest silence {silences}, without writes {self.unwritten:.1f}; "
                f"equal after {self.equal_after:.1f} s{'; ' + self.note if self.note else ''}")


def markdown(rows, clients, caches):
    """The table; CLIENTS informers need CACHES caches."""
    out = [f"{clients} informers, {caches} caches. Times in seconds.", "",
           "| fault | lists upstream | lists of clients | longest silence: client-go | kube-rs | ours | longest time without a write | stores equal after |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        lists = sum(row.clients.values()) or 0
        silences = " | ".join(f"{row.silences[name]:.1f}" for name in LIBRARIES)
        note = f" ({row.note})" if row.note else ""
        out.append(f"| {row.text}{note} | {row.upstream} | {lists} | {silences} | {row.unwritten:.1f} | {row.equal_after:.1f} |")
    return "\n".join(out) + "\n"
