"""Lists of known differences: each line has the name of a case, or a pattern of names in which * matches anything, then | and the
reason."""
import re


class Known:
    """The entries of one file. `unused()` returns those that never matched."""

    def __init__(self, path):
        self.entries, self.used = {}, set()
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                name, _, reason = line.partition(" | ")
                self.entries[name.strip()] = reason.strip()

    def reason(self, name):
        """The reason why this case may differ, or None."""
        for pattern, reason in self.entries.items():
            if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL):
                self.used.add(pattern)
                return reason
        return None

    def unused(self):
        return [name for name in self.entries if name not in self.used]
