"""Request headers: representations, compressions, clients, WebSockets."""

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
META = ";v={};g=meta.k8s.io"
SOCKET = (("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13"), ("Origin", "http://127.0.0.1"))
AGENTS = ("curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "kubectl/v1.36.0", "Go-http-client/1.1", "curl", "Curl/8", " curl/8", "")


def as_form(kind, version="v1"):
    return f";as={kind}{META.format(version)}"


def good_accept(dice, resource, watch, single):
    """Accept headers that clients send."""
    part = "PartialObjectMetadata" if watch or single else "PartialObjectMetadataList"
    table = f"{JSON}{as_form('Table')}"
    some = [JSON, JSON, "*/*", f"{table},{JSON}", f"{table},{JSON}{as_form('Table', 'v1beta1')},{JSON}", f"{JSON}{as_form(part)},{JSON}", f"{JSON}{as_form(part)}", f"{PROTOBUF}{as_form(part)}", f"{PROTOBUF}{as_form(part)},{JSON}{as_form(part)},{JSON}",
            f"{PROTOBUF},{JSON}", f"{PROTOBUF},*/*", f"{JSON};q=0.9,{PROTOBUF};q=0.5", f"{JSON};charset=utf-8"]
    if resource.protobuf:
        some += [PROTOBUF, PROTOBUF, f"{PROTOBUF}{';stream=watch' if watch else ''}"]
    return dice.pick(some + [YAML, f"{YAML}{as_form(part)}"] if not watch else some)


def element(dice):
    """One element of an Accept header, rarely a valid one."""
    kind = dice.pick([JSON, JSON, YAML, PROTOBUF, PROTOBUF, "application/cbor", "application/cbor-seq", "*/*", "application/*", "*", "text/html", "text/csv", "APPLICATION/JSON", "application", "/", "application/json/x", "garbage", "", "text/*", "*/json", f"{JSON}x"])
    for _ in range(dice.pick([0, 0, 1, 1, 2])):
        kind += dice.pick([";", "; ", " ;"]) + dice.pick([
            "q=0.5", "q=0", "q=1", "q=1.0", "q=2", "q=-1", "q=x", "q=", "q", "q=0.001", "stream=watch", "stream=nope", "stream=", "charset=utf-8", "pretty=1", "pretty=0", "pretty=true", "sv=v1", "sv=v9",
            "as=Table;v=v1;g=meta.k8s.io", "as=Table;v=v1beta1;g=meta.k8s.io", "as=Table;v=v9;g=meta.k8s.io", "as=Table;v=v1", "as=Table", "as=Table;g=meta.k8s.io", "as=table;v=v1;g=meta.k8s.io", "as=;v=v1;g=meta.k8s.io",
            "as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io", "as=Nope;v=v1;g=meta.k8s.io",
            "as=Table;v=v1;g=example.com", "g=meta.k8s.io", "v=v1", "export=1", "profile=x", "x", "=", 'q="0.5"', "AS=Table;V=v1;G=meta.k8s.io", "as=Table;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"])
    return kind


def wild_accept(dice):
    """Values of one or more headers."""
    header = lambda: dice.pick([",", ", ", " , "]).join(element(dice) for _ in range(dice.pick([1, 1, 2, 2, 3, 5])))
    return [header() for _ in range(dice.pick([1, 1, 1, 1, 2]))]


def encoding(dice):
    return dice.pick(["gzip", "gzip", "gzip", "identity", "gzip, deflate", "deflate, gzip", "deflate,gzip;q=1.0", "gzip;q=0", "*", "GZIP", "br", "", " gzip ", "gzip,gzip", "identity;q=0", "gzip ,br"])


def socket(dice, whole):
    """The headers of an upgrade, or some of them."""
    headers = list(SOCKET)
    if not whole:
        headers = [h for h in headers if not dice.chance(0.3)]
        if dice.chance(0.5):
            spot = dice.number(0, len(headers))
            headers.insert(spot, dice.pick([("Connection", "keep-alive, Upgrade"), ("Connection", "upgrade"), ("Upgrade", "WebSocket"), ("Upgrade", "h2c"), ("Sec-WebSocket-Version", "8"), ("Sec-WebSocket-Key", "x"), ("Origin", "::"), ("Origin", "null"), ("Origin", "")]))
    if dice.chance(0.3):
        headers.append(("Sec-WebSocket-Protocol", dice.pick(["v4.channel.k8s.io", "binary.k8s.io", "base64.binary.k8s.io, x", "", "nope"])))
    return headers


def audit(dice):
    return dice.pick(["8f6c1a2e-0000-4000-8000-000000000001", "short", "", "i" * 64, "i" * 65, "i" * 300, "with blank", "a,b"])
