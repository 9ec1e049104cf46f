"""The notebook style of this course: one function a rule, and `python -m helpers.make.style`.

Each rule yields (cell number, what is wrong). Cells count from 1; 0 is the whole notebook.
"""

import ast
import re
import sys
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import reader

ROOT = Path(__file__).resolve().parents[2]
CELLS, CELLS_START, CELLS_LONG = (25, 50), (15, 50), (25, 80)
WORDS, CODE_LINES, LINE_LENGTH = (500, 1500), 15, 88
FORBIDDEN = (r"sys\.path|(?i:open a (?:new )?terminal)|%pip|torch\.cuda\.is_available"
             r"|(?<![\w.])/" r"work\b")
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|<?https?://\S+", re.DOTALL)
RATE = r"(?:tok|tokens?|req|requests?)(?:/s\b|\s+(?:a|per) second)|T(?:FL)?OPS\b"
TIME, SIZE = r"(?:[mµn]?s|(?:milli|micro)?sec(?:onds?)?)\b", r"[KMGT]i?B(?:/s|/token)?\b"
VALUE = re.compile(rf"(?<![\w.])(?!\d{{3}}0s\b)\d[\d,.]*(?:\s|&nbsp;|-)*(?:{RATE}|{TIME}|{SIZE})")


def prose(source):
    """Markdown without code, links and addresses: what counts as prose."""
    return NOT_PROSE.sub(" ", source)


def parsed(source):
    """The syntax tree of a code cell, IPython's % and ! lines included. Raises SyntaxError."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return compile(TransformerManager().transform_cell(source), "<cell>", "exec", flags)


def check_call(tree):
    """The check that a cell ends in, such as 'check.layers', or None."""
    last = getattr(tree.body[-1], "value", None) if tree.body else None
    name = ast.unparse(last.func) if isinstance(last, ast.Call) else ""
    return name if name.startswith("check.") else None


def _cells(notebook, kind):
    return [(n, cell) for n, cell in enumerate(notebook.cells, 1) if cell.cell_type == kind]


def length(notebook, name):
    longer = {"00": CELLS_START, "02": CELLS_LONG, "la": CELLS_LONG}  # "la": the labs
    low, high = longer.get(name[:2], CELLS)
    if not low <= len(notebook.cells) <= high:
        yield 0, f"{len(notebook.cells)} cells, not {low} to {high}"
    words = sum(len(cell.source.split()) for _, cell in _cells(notebook, "markdown"))
    if not WORDS[0] <= words <= WORDS[1]:
        yield 0, f"{words} words of markdown, not {WORDS[0]} to {WORDS[1]}"


def opening(notebook, name):
    text = "\n".join(cell.source for _, cell in _cells(notebook, "markdown")[:3])
    if notebook.cells[0].cell_type != "markdown" or not text.startswith("# "):
        yield 1, "the first cell is not a markdown title ('# ...')"
    for pattern, what in ((r"\d\s+minutes", "how many minutes it takes"),
                          (r"\bneed", "what is needed")):
        if not re.search(pattern, text):
            yield 1, f"the opening does not say {what}"


def cell_ids(notebook, name):
    seen = set()
    for number, cell in enumerate(notebook.cells, 1):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell.get("id", "")) or cell.get("id") in seen:
            yield number, f"cell id {cell.get('id')!r} is missing, malformed or used twice"
        seen.add(cell.get("id"))


def code_cells(notebook, name):
    for number, cell in _cells(notebook, "code"):
        lines = cell.source.splitlines()
        if len(lines) > CODE_LINES:
            yield number, f"{len(lines)} lines of code, more than {CODE_LINES}"
        if (longest := max(map(len, lines), default=0)) > LINE_LENGTH:
            yield number, f"a line of {longest} characters, more than {LINE_LENGTH}"
        if cell.outputs or cell.execution_count is not None:
            yield number, "a stored output or execution count"
        after = [c.cell_type for c in notebook.cells[number:number + 1]]
        if "raises-exception" in cell.metadata.get("tags", []) and after in ([], ["raw"]):
            yield number, "a deliberate failure that no next cell reads"


def wording(notebook, name):
    for number, cell in enumerate(notebook.cells, 1):
        for match in re.finditer(FORBIDDEN, cell.source):
            yield number, f"'{match.group()}' does not belong in a notebook"
    for number, cell in _cells(notebook, "markdown"):
        for match in VALUE.finditer(prose(cell.source)):
            yield number, f"a measured value typed into prose: '{match.group()}'"


def exercises(notebook, name):
    """A stub with `...` and a check; later a collapsed solution that ends in the same check."""
    open_stubs, count, wanted = [], 0, 1 if name.startswith("00") else 3
    for number, cell in _cells(notebook, "code"):
        try:
            tree = parsed(cell.source)
        except SyntaxError as error:
            yield number, f"not valid Python: {error.msg}"
            continue
        call = check_call(tree)
        if "solution" in cell.metadata.get("tags", []):
            if not cell.metadata.get("jupyter", {}).get("source_hidden"):
                yield number, "a solution that is not collapsed (jupyter.source_hidden)"
            if not call:
                yield number, "a solution that does not end in a call on check."
            elif call in open_stubs:
                open_stubs.remove(call)
            else:
                yield number, f"a solution to {call} with no exercise before it"
        elif call:
            open_stubs, count = [*open_stubs, call], count + 1
            if not any(getattr(node, "value", None) is ... for node in ast.walk(tree)):
                yield number, f"{call} in a cell that leaves no '...' to fill in"
    yield from ((0, f"{call} has no solution after it") for call in open_stubs)
    if count < wanted:
        yield 0, f"{count} exercises, fewer than {wanted}"


RULES = [length, opening, cell_ids, code_cells, wording, exercises]


def violations(notebook, name):
    """All that is wrong with a notebook called name: '02_measuring_latency', 'labs/02_mps'."""
    return sorted(found for rule in RULES for found in rule(notebook, name))


def notebooks():
    """{name: notebook} of every lesson and lab, as they are on disk."""
    paths = sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("labs/*.ipynb")])
    return {str(p.relative_to(ROOT).with_suffix("")).removeprefix("notebooks/"):
            reader.reads(p.read_text(encoding="utf-8")) for p in paths}


def main():
    """Print what is wrong; True where anything is."""
    wrong = [(name, *v) for name, nb in notebooks().items() for v in violations(nb, name)]
    for name, number, what in wrong:
        print(f"{name}.ipynb, cell {number}: {what}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
