"""Label and field selectors: generated from a grammar, then broken."""

KEYS = ("app", "rank", "example.com/tier", "absent", "kubernetes.io/metadata.name", "done")
VALUES = ("demo", "other", "", "front", "3", "none", "x.y_z-1")
BAD_KEYS = ("-app", "a/b/c", "/x", "x/", "app ", "a" * 64, "b" * 254 + "/x", "EXAMPLE.com/a", "_", "ä", "in", "notin", "")
BAD_VALUES = ("-x", "x-", "a b", "a/b", "v" * 64, "ä", '"x"', "x=y", "in")
NOISE = "=!,()<> \t\\inot-_./ä\"x0\n"


def spaced(dice, *words):
    """The words, with blanks where the grammar allows them."""
    gap = (lambda: dice.pick(["", " ", "  ", "\t"])) if dice.chance(0.15) else (lambda: "")
    return "".join(gap() + w for w in words) + gap()


def label_term(dice, keys=KEYS, values=VALUES):
    key, value = dice.pick(keys), dice.pick(values)
    form = dice.pick(["has", "not", "=", "=", "==", "!=", "in", "notin", ">", "<"])
    if form == "has":
        return spaced(dice, key)
    if form == "not":
        return spaced(dice, "!", key)
    if form in ("in", "notin"):
        some = ",".join(spaced(dice, dice.pick(values)) for _ in range(dice.number(0, 3)))
        return f"{key} {form} {'' if dice.chance(0.2) else ' '}({some})"
    if form in "<>":
        value = dice.pick(["3", "0", "-1", "10", "9223372036854775807", "5"])
    return spaced(dice, key, form, value)


def labels(dice):
    return ",".join(label_term(dice) for _ in range(dice.pick([1, 1, 1, 2, 3])))


def broken_labels(dice):
    how = dice.pick(["noise", "noise", "noise", "key", "value", "number", "given"])
    if how == "key":
        return label_term(dice, keys=BAD_KEYS)
    if how == "value":
        return label_term(dice, values=BAD_VALUES)
    if how == "number":
        return f"rank{dice.pick('<>')}{dice.pick(['x', '', '1.5', '99999999999999999999', '0x1', '+1', '01'])}"
    if how == "given":
        return dice.pick(["===", "!app=demo", "app in demo", "app in (demo", "app=demo,", ",app", ",", "app in (,)", "app in (a,,b)", "app=demo app", "a!b", "(app)", " ", "app=(x)", "app,,rank",
                          "in in (in)", "notin notin (notin)", "!in", "app in(demo)", "app notin(demo),!rank", "app=in", "app!in(demo)", "app=demo=x", "app<=3", "app=>3", "app=!demo"])
    return noisy(dice, labels(dice))


def noisy(dice, text):
    """One to three characters inserted, replaced, removed or doubled."""
    for _ in range(dice.pick([1, 1, 2, 3])):
        at = dice.number(0, len(text))
        end = min(len(text), at + dice.number(0, 2))
        text = text[:at] + dice.pick(["", dice.pick(NOISE), dice.pick(NOISE), text[at:end] * 2]) + text[end:]
    return text


def fields(dice, resource):
    name = dice.pick([*resource.names, "nope", ""])
    some = [*resource.fields, f"metadata.name={name}", f"metadata.name=={name}", f"metadata.name!={name}"]
    if resource.namespaced:
        some += [f"metadata.namespace={n}" for n in ("default", "a", "a-b", "elsewhere")] + ["metadata.namespace!=a"]
    terms = [dice.pick(some) for _ in range(dice.pick([1, 1, 1, 2, 3]))]
    return ",".join(terms) + (dice.pick([",", ""]) if dice.chance(0.1) else "")


def broken_fields(dice, resource):
    how = dice.pick(["noise", "noise", "unknown", "given"])
    if how == "unknown":
        field = dice.pick(["spec.nope", "metadata.labels", "status.phase", "spec.color", "metadata.uid", "Metadata.name", "name", "involvedObject.name", "type", ""])
        return f"{field}{dice.pick(['=', '==', '!='])}{dice.pick(['', 'x'])}"
    if how == "given":
        return dice.pick(["metadata.name", "metadata.name=a=b", "metadata.name=a==b", "metadata.name===a", r"metadata.name=\z", r"metadata.name=a\,b", r"metadata.name=a\=b", "metadata.name=a\\", "=x", "=", "!=",
                          ",", ",,", " ", "metadata.name =p1", "metadata.name= p1", " metadata.name=p1", "metadata.name=p1, ", "metadata.name>p1", "metadata.name in (p1)", "metadata.name!p1", r"metadata.na\me=p1",
                          "metadata.name=p1/x", "metadata.name=..", "metadata.name=.", "metadata.name=%", "metadata.namespace=", "metadata.name=p1,metadata.name!=p1"])
    return noisy(dice, fields(dice, resource))
