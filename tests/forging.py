"""Take model files apart and put them together again, as an attacker could."""

import json

from tailored.files.format import pack, unpack


def apart(path):
    """Return the tree and the arrays of a file."""
    tree, arrays = unpack(path.read_bytes())
    return json.loads(tree), arrays


def together(path, tree, arrays):
    """Write a file with this tree (or its bytes) and these arrays, and with a right checksum."""
    content = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    path.write_bytes(pack(content, arrays))
    return path


def forge(path, change, target):
    """Write a copy that ``change(tree, arrays)`` has changed."""
    tree, arrays = apart(path)
    change(tree, arrays)
    return together(target, tree, arrays)


def fields_of(tree, *names):
    """Return the fields of the model, or of the first object in it that has fields of these names."""
    if not names:
        return tree["value"]["object"][1]
    return next(fields for _, fields in nodes(tree, "object") if set(names) <= set(fields))


def places(node, *path):
    """List the paths to all nodes of a tree."""
    yield path
    for key, part in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        yield from places(part, *path, key)


def at(node, path):
    for step in path:
        node = node[step]
    return node


def nodes(tree, kind):
    """List the bodies of all nodes of a kind, such as the name and fields of every object."""
    found = (at(tree, path) for path in places(tree))
    return [node[kind] for node in found if isinstance(node, dict) and set(node) == {kind}]
