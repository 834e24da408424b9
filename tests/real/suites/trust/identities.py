"""The callers: tokens, client certificates, front proxies, and invalid forms of each."""
import base64
import secrets
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
EKU_CLIENT = "extendedKeyUsage=clientAuth"
OTHER_AUDIENCE, OWN_AUDIENCE = "https://elsewhere.example", "https://kubernetes.default.svc"
UID_EXTENSION = "1.3.6.1.4.1.57683.2=ASN1:UTF8String:uid-7"  # the certificate's user has this uid

# name: (user, groups, audiences)
USERS = {
    "root": ("root", ["system:masters"], []),
    "reader": ("reader", [], []),
    "a-reader": ("a-reader", [], []),
    "a-one-name": ("a-one-name", [], []),
    "blue": ("blue-one", ["team:blue", "team:green"], []),
    "lister": ("lister", [], []),
    "watcher": ("watcher", [], []),
    "writer": ("writer", [], []),
    "nobody": ("nobody", [], []),
    "broken": ("broken", [], []),  # bound to roles that do not exist
    "odd": ("odd ünd <b>&\"'", ["a group with blanks", "grüppe"], []),
    "robot": ("system:serviceaccount:a:robot", ["system:serviceaccounts", "system:serviceaccounts:a"], []),
    "actor": ("actor", [], []),  # may impersonate some users
    "narrow-actor": ("narrow-actor", [], []),  # may impersonate some users, for lists of pods
    "elsewhere": ("reader", [], [OTHER_AUDIENCE]),
    "everywhere": ("reader", [], [OTHER_AUDIENCE, OWN_AUDIENCE]),
}
# name: (CA, subject, extensions, start and end in days from now)
YEAR = (-1, 365)
CERTIFICATES = {
    "reader": ("ca", "/CN=reader", EKU_CLIENT, YEAR),
    "blue": ("ca", "/O=team:blue/O=team:green/CN=blue-one", EKU_CLIENT, YEAR),
    "nobody": ("ca", "/CN=nobody", EKU_CLIENT, YEAR),
    "actor": ("ca", "/CN=actor", EKU_CLIENT, YEAR),
    "masters": ("ca", "/O=system:masters/CN=root", EKU_CLIENT, YEAR),
    "uid": ("ca", "/CN=reader", f"{EKU_CLIENT}\n{UID_EXTENSION}", YEAR),
    "odd": ("ca", "/O=grüppe/CN=odd ünd <b>&\"'", EKU_CLIENT, YEAR),
    "expired": ("ca", "/CN=reader", EKU_CLIENT, (-30, -1)),
    "future": ("ca", "/CN=reader", EKU_CLIENT, (1, 30)),
    "nameless": ("ca", "/O=team:blue", EKU_CLIENT, YEAR),
    "for servers": ("ca", "/CN=reader", "extendedKeyUsage=serverAuth", YEAR),
    "for anything": ("ca", "/CN=reader", "keyUsage=digitalSignature", YEAR),
    "two names": ("ca", "/CN=nobody/CN=reader", EKU_CLIENT, YEAR),
    "unknown CA": ("stranger", "/CN=reader", EKU_CLIENT, YEAR),
    "unknown CA of the same name": ("double", "/CN=reader", EKU_CLIENT, YEAR),
    "proxy": ("proxy-ca", "/CN=front-proxy", EKU_CLIENT, YEAR),
    "proxy of another name": ("proxy-ca", "/CN=reader", EKU_CLIENT, YEAR),
    "proxy by the clients' CA": ("ca", "/CN=front-proxy", EKU_CLIENT, YEAR),
    "expired proxy": ("proxy-ca", "/CN=front-proxy", EKU_CLIENT, (-30, -1)),
}


@dataclass
class Who:
    """The credentials of a request: the certificate's name or None, and headers as pairs."""
    name: str
    headers: list = field(default_factory=list)
    certificate: str = None


def openssl(folder, *args):
    done = subprocess.run(["openssl", *args], cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"openssl {' '.join(args)}:\n{done.stderr}")
    return done.stdout


def moment(days):
    return (datetime.now(timezone.utc) + timedelta(days=days)).strftime("%Y%m%d%H%M%SZ")


class Credentials:
    """Creates the certificates in FOLDER, and adds the tokens to the server's file."""

    def __init__(self, folder):
        self.folder, self.tokens = folder, {}
        with open(folder / "tokens.csv", "a", encoding="utf-8") as file:
            for name, (user, groups, audiences) in USERS.items():
                self.tokens[name] = secrets.token_hex(16)
                (folder / f"trust-{name}.token").write_text(self.tokens[name])
                file.write(",".join(quoted(v) for v in (self.tokens[name], user, f"uid-of-{name}", ",".join(groups), ",".join(audiences))) + "\n")
        for name, subject in (("stranger", "/CN=stranger"), ("double", "/CN=real-apiserver-ca")):
            openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", subject)
        for name, (ca, subject, extensions, (since, until)) in CERTIFICATES.items():
            self._sign(name, ca, (subject, extensions), (moment(since), moment(until)))

    def add_token(self, name, user, groups=()):
        """Adds a token for a user of its own."""
        self.tokens[name] = secrets.token_hex(16)
        with open(self.folder / "tokens.csv", "a", encoding="utf-8") as file:
            file.write(",".join(quoted(v) for v in (self.tokens[name], user, f"uid-of-{name}", ",".join(groups), "")) + "\n")
        return self.tokens[name]

    def pair(self, name):
        stem = f"trust-{name.replace(' ', '-').replace(chr(39), '')}"
        return str(self.folder / f"{stem}.crt"), str(self.folder / f"{stem}.key")

    def sign_briefly(self, name, user, seconds):
        """A client certificate for USER that is valid for SECONDS; its pair of files."""
        self._sign(name, "ca", (f"/CN={user}", EKU_CLIENT), (moment(-1), moment(seconds / 86400)))
        return self.pair(name)

    def _sign(self, name, ca, contents, validity):
        (subject, extensions), (since, until) = contents, validity
        certificate, key = self.pair(name)
        work = self.folder / f"work-{ca}"
        if not work.exists():
            work.mkdir()
            (work / "index.txt").write_text("")
            (work / "index.txt.attr").write_text("unique_subject = no\n")
        config = work / "config"
        config.write_text(f"""[ca]
default_ca=own
[own]
database={work}/index.txt
new_certs_dir={work}
certificate={self.folder}/{ca}.crt
private_key={self.folder}/{ca}.key
rand_serial=yes
default_md=sha256
policy=any
x509_extensions=ext
[any]
organizationName=optional
commonName=optional
[req]
distinguished_name=dn
[dn]
[ext]
{extensions}
""", encoding="utf-8")
        openssl(self.folder, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8", "-config", str(config), "-keyout", key, "-out", f"{certificate}.csr", "-subj", subject)
        openssl(self.folder, "ca", "-batch", "-notext", "-preserveDN", "-utf8", "-config", str(config), "-in", f"{certificate}.csr", "-out", certificate, "-startdate", since, "-enddate", until)

    # --- the credentials of requests ------------------------------------------------

    def user(self, name):
        return Who(f"token {name}", [("Authorization", f"Bearer {self.tokens[name]}")])

    def everyone(self):
        """All ways to present an identity, valid and invalid."""
        token = self.tokens
        bearer = lambda text: [("Authorization", f"Bearer {text}")]
        remote = lambda user, *more: [("X-Remote-User", user), *more]
        yield Who("no credential")
        yield from (self.user(name) for name in USERS)
        wrong = {
            "an unknown token": bearer("nope"), "an empty token": [("Authorization", "Bearer ")], "no token": [("Authorization", "Bearer")], "an empty Authorization": [("Authorization", "")],
            "a token of 4,000 characters": bearer("x" * 4000), "a token and more": bearer(f"{token['reader']} more"), "a token of two lines": bearer(f"{token['reader']},{token['root']}"),
            "Basic": [("Authorization", "Basic cm9vdDpyb290")], "a token without its scheme": [("Authorization", token["reader"])], "a token in lower case": [("Authorization", f"bearer {token['reader']}")],
            "a token in upper case": [("Authorization", f"BEARER {token['reader']}")], "two spaces": [("Authorization", f"Bearer  {token['reader']}")], "a token and a space": bearer(f"{token['reader']} "),
            "a token changed at its end": bearer(token["reader"][:-1] + ("0" if token["reader"][-1] != "0" else "1")), "a token in capitals": bearer(token["reader"].upper()),
            "right, then wrong": bearer(token["reader"]) + bearer("nope"), "wrong, then right": bearer("nope") + bearer(token["reader"]), "two users": bearer(token["nobody"]) + bearer(token["reader"]),
            "X-Remote-User alone": remote("reader"), "X-Remote-User and a token": remote("reader") + bearer(token["nobody"]), "X-Remote-User and an unknown token": remote("reader") + bearer("nope"),
            "Proxy-Authorization": [("Proxy-Authorization", f"Bearer {token['reader']}")], "a cookie": [("Cookie", f"token={token['reader']}")], "X-Forwarded-User": [("X-Forwarded-User", "reader")],
        }
        for name, headers in wrong.items():
            yield Who(name, headers)
        for name in CERTIFICATES:
            yield Who(f"certificate {name}", [], name)
        mixed = {
            "certificate reader, unknown token": ("reader", bearer("nope")), "certificate nobody, token reader": ("nobody", bearer(token["reader"])), "certificate reader, token nobody": ("reader", bearer(token["nobody"])),
            "certificate expired, token reader": ("expired", bearer(token["reader"])), "certificate unknown CA, token reader": ("unknown CA", bearer(token["reader"])),
            "certificate expired, unknown token": ("expired", bearer("nope")), "certificate nameless, token reader": ("nameless", bearer(token["reader"])), "certificate reader, X-Remote-User": ("reader", remote("root")),
            "proxy reader": ("proxy", remote("reader")), "proxy nobody": ("proxy", remote("nobody")), "proxy and groups": ("proxy", remote("somebody", ("X-Remote-Group", "team:blue"), ("X-Remote-Group", "team:green"))),
            "proxy and a group twice": ("proxy", remote("somebody", ("X-Remote-Group", ""), ("X-Remote-Group", "team:blue"), ("X-Remote-Group", "team:blue"))), "proxy and masters": ("proxy", remote("somebody", ("X-Remote-Group", "system:masters"))),
            "proxy and groups in one line": ("proxy", remote("somebody", ("X-Remote-Group", "team:blue, team:green"))), "proxy, uid and extra": ("proxy", remote("reader", ("X-Remote-Uid", "7"), ("X-Remote-Extra-Scopes", "view"), ("X-Remote-Extra-Acme.com%2fproject", "p"))),
            "proxy, two users": ("proxy", remote("reader") + remote("nobody")), "proxy, empty user": ("proxy", remote("")), "proxy, empty user, then one": ("proxy", remote("") + remote("reader")), "proxy, groups without user": ("proxy", [("X-Remote-Group", "system:masters")]),
            "proxy and a token": ("proxy", remote("reader") + bearer(token["nobody"])), "proxy without user, with a token": ("proxy", bearer(token["reader"])), "proxy and an unknown token": ("proxy", remote("reader") + bearer("nope")),
            "proxy for anonymous": ("proxy", remote("system:anonymous", ("X-Remote-Group", "system:unauthenticated"))), "proxy for a service account": ("proxy", remote("system:serviceaccount:a:robot")), "proxy for odd": ("proxy", remote("odd <b>&\"'")),
            "proxy, lower case": ("proxy", [("x-remote-user", "reader"), ("x-remote-group", "team:blue")]), "proxy of another name, user": ("proxy of another name", remote("reader")), "proxy of another name, token": ("proxy of another name", remote("root") + bearer(token["reader"])),
            "proxy by the clients' CA, user": ("proxy by the clients' CA", remote("reader")), "expired proxy, user": ("expired proxy", remote("reader")), "expired proxy, token": ("expired proxy", remote("root") + bearer(token["reader"])),
        }
        for name, (certificate, headers) in mixed.items():
            yield Who(name, headers, certificate)

    def sockets(self):
        """WebSocket subprotocols: (name, value of Sec-WebSocket-Protocol or None, further headers)."""
        def coded(name):
            return SUBPROTOCOL + base64.urlsafe_b64encode(self.tokens[name].encode()).decode().rstrip("=")
        padded = SUBPROTOCOL + base64.urlsafe_b64encode(b"reader-1").decode()
        yield from {
            "no token": (None, []), "token reader": (f"{coded('reader')}, base64.binary.k8s.io", []), "token reader alone": (coded("reader"), []), "token nobody": (f"base64.binary.k8s.io, {coded('nobody')}", []),
            "unknown token": (f"{SUBPROTOCOL}bm9wZQ, base64.binary.k8s.io", []), "not base64": (f"{SUBPROTOCOL}!!!, base64.binary.k8s.io", []), "padded": (f"{padded}, base64.binary.k8s.io", []),
            "empty": (f"{SUBPROTOCOL}, base64.binary.k8s.io", []), "two tokens": (f"{coded('reader')}, {coded('nobody')}, base64.binary.k8s.io", []),
            "token in the header": ("base64.binary.k8s.io", [("Authorization", f"Bearer {self.tokens['reader']}")]),
            "another token in the header": (f"{coded('reader')}, base64.binary.k8s.io", [("Authorization", f"Bearer {self.tokens['nobody']}")]),
            "unknown token in the header": (f"{coded('reader')}, base64.binary.k8s.io", [("Authorization", "Bearer nope")]),
            "token of a-reader": (f"{coded('a-reader')}, base64.binary.k8s.io", []), "token of the watcher": (f"{coded('watcher')}, base64.binary.k8s.io", []),
        }.items()


def quoted(value):
    return '"' + value.replace('"', '""') + '"'
