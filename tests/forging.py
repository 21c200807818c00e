"""Model files taken apart and put together again, as a forger would."""

import json

from tailored.archive import container


def members_of(path):
    """The members of a file by name."""
    return {name: bytes(body) for name, body in container.unpack(path.read_bytes()).items()}


def put_together(path, members):
    """A file with these members and a right checksum."""
    path.write_bytes(b"".join(container.pack(members)))
    return path


def tree_of(path):
    return json.loads(members_of(path)["model.json"])


def forge(path, change, target):
    """A copy with another tree: ``change`` is called with it, and changes it."""
    members = members_of(path)
    tree = json.loads(members["model.json"])
    change(tree)
    return put_together(target, {**members, "model.json": json.dumps(tree).encode()})


def forge_fields(path, change, target):
    """A copy with another tree, of whose arrays only those that it still names are left, by their new numbers."""
    members = members_of(path)
    tree = json.loads(members.pop("model.json"))
    change(tree)
    left = {}
    for number, node in enumerate(arrays_like(tree)):
        left[f"arrays/{number}.npy"] = members[f"arrays/{node['array'][0]}.npy"]
        node["array"][0] = number
    return put_together(target, {"model.json": json.dumps(tree).encode(), **left})


def parts_of(tree, *names):
    """The fields of an object in a tree, by the names that lead to it."""
    node = tree["dict"]["value"]
    for name in names:
        node = (node["object"][1] if "object" in node else next(iter(node.values())))[name]
    return node["object"][1] if "object" in node else next(iter(node.values()))


def arrays_like(tree):
    """All nodes of arrays."""
    if isinstance(tree, dict):
        if set(tree) == {"array"}:
            yield tree
        else:
            for part in tree.values():
                yield from arrays_like(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from arrays_like(part)


def objects_in(tree):
    """Names of all classes in a tree."""
    if isinstance(tree, dict):
        if set(tree) == {"object"}:
            yield tree["object"][0]
        for part in tree.values():
            yield from objects_in(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from objects_in(part)
