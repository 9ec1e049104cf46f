"""Text that every machine has: the docstrings of Python's standard library, in pieces."""

import ast
import sysconfig
from pathlib import Path


def pieces(count, *, characters=4000):
    """{name: text}: the first `count` pieces of at least `characters` characters, each of one
    module's docstrings, modules by name. Fewer where the library has no more."""
    found = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if len(found) >= count:
            break
        text = "\n\n".join(_docs(path))
        for start in range(0, len(text) - characters + 1, characters):
            found[f"{path.stem}-{start // characters}"] = text[start:start + characters]
    return dict(list(found.items())[:count])


def _docs(path):
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return []
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    return [doc for node in ast.walk(tree) if isinstance(node, kinds)
            if (doc := ast.get_docstring(node))]
