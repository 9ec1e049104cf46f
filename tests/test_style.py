"""The style rules, each with a notebook that breaks it; then the real notebooks."""

import subprocess

import nbformat
import nbformat.v4 as v4
import pytest

from helpers.make import style

TITLE = "# Measuring\n\nAbout 40 minutes. You need lesson 01."


def code(source, *tags, hidden=False):
    cell = v4.new_code_cell(source)
    cell.metadata["tags"] = list(tags)
    if hidden:
        cell.metadata["jupyter"] = {"source_hidden": True}
    return cell


def exercise(name):
    return [code(f"answer = ...\ncheck.{name}(answer)"),
            code(f"answer = 3\ncheck.{name}(answer)", "solution", hidden=True)]


def good_notebook():
    """A notebook of 30 cells that no rule objects to."""
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(TITLE)])
    for name in ("layers", "bytes", "fits"):
        notebook.cells += exercise(name)
    notebook.cells += [code("serve()", "raises-exception"), code("print(served)")]
    words = "Predict it first, then measure. " * 6
    notebook.cells += [v4.new_markdown_cell(words) for _ in range(21)]
    return notebook


def found(notebook, name="05_batching"):
    return "\n".join(f"{number}: {what}" for number, what in style.violations(notebook, name))


def test_a_good_notebook_has_no_violations():
    assert found(good_notebook()) == ""


@pytest.mark.parametrize(("name", "cells", "allowed"), [
    ("05_batching", 24, False), ("05_batching", 25, True), ("05_batching", 51, False),
    ("02_measuring_latency", 80, True), ("02_measuring_latency", 81, False),
    ("00_start_here", 15, True), ("00_start_here", 14, False),
    ("labs/01_two_engines", 80, True), ("labs/01_two_engines", 81, False),
])
def test_number_of_cells(name, cells, allowed):
    notebook = good_notebook()
    notebook.cells = (notebook.cells + [code("x = 1") for _ in range(80)])[:cells]
    assert (f"{cells} cells" not in found(notebook, name)) is allowed


def test_number_of_words():
    notebook = good_notebook()
    notebook.cells[-1].source = "word " * 1500
    assert "words of markdown, not 500 to 1500" in found(notebook)
    for cell in notebook.cells[10:]:
        cell.source = "few words"
    assert "words of markdown, not 500 to 1500" in found(notebook)


@pytest.mark.parametrize(("source", "expected"), [
    ("Measuring\n\n40 minutes. You need nothing.", "not a markdown title"),
    ("# Measuring\n\nYou need nothing.", "how many minutes"),
    ("# Measuring\n\n40 minutes.", "what is needed"),
])
def test_opening(source, expected):
    notebook = good_notebook()
    notebook.cells[0].source = source
    assert expected in found(notebook)


def test_opening_is_not_code():
    notebook = good_notebook()
    notebook.cells[0] = code("# Measuring")
    assert "not a markdown title" in found(notebook)


@pytest.mark.parametrize("bad_id", ["has space", "", "x" * 65])
def test_malformed_cell_id(bad_id):
    notebook = good_notebook()
    notebook.cells[4]["id"] = bad_id
    assert "5: cell id" in found(notebook)


def test_missing_or_repeated_cell_id():
    notebook = good_notebook()
    del notebook.cells[4]["id"]
    notebook.cells[6]["id"] = notebook.cells[5]["id"]
    assert "5: cell id" in found(notebook) and "7: cell id" in found(notebook)


def test_too_many_lines_of_code():
    notebook = good_notebook()
    notebook.cells[8].source = "x = 1\n" * 16
    assert "9: 16 lines of code" in found(notebook)


@pytest.mark.parametrize("position", [2, 8])  # a solution, another code cell
def test_too_long_a_line(position):
    notebook = good_notebook()
    notebook.cells[position].source = "x = '" + "a" * 88 + "'\ncheck.layers(x)"
    assert f"{position + 1}: a line of 94 characters" in found(notebook)


def test_stored_output_or_count():
    notebook = good_notebook()
    notebook.cells[7].execution_count = 3
    notebook.cells[8].outputs = [v4.new_output("stream", text="hello")]
    assert "8: a stored output" in found(notebook) and "9: a stored output" in found(notebook)


def test_failure_that_nothing_reads():
    notebook = good_notebook()
    notebook.cells.append(code("serve()", "raises-exception"))
    assert "31: a deliberate failure" in found(notebook)
    notebook.cells.append(v4.new_raw_cell("raw"))
    assert "31: a deliberate failure" in found(notebook)
    notebook.cells[-1] = v4.new_markdown_cell("Read the message.")
    assert "deliberate failure" not in found(notebook)


@pytest.mark.parametrize("text", [
    "It took 12 ms.", "It took 3.5 s.", "It ran 20 seconds.", "It gave 100 tok/s.",
    "It gave 4,501.74 tokens/s.", "It reads 31 GB/s.", "It has 8GB.", "Cache: 1.5&nbsp;GiB.",
    "That is 7 requests a second.", "It moves 89.00 MB/token.", "Between 10 and 20 ms.",
])
def test_measured_value_in_prose(text):
    notebook = good_notebook()
    notebook.cells[20].source += text
    assert "21: a measured value typed into prose" in found(notebook)


@pytest.mark.parametrize("text", [
    "A class of 30 pupils, 4 bits, 8 streams, 2 servers, 3 steps, 128 tokens.",
    "About 40 minutes, in the 1990s, vLLM 0.30 serves a 14B model.",
    "Linked [12 ms](https://example.org/12ms), coded `12 ms`, and\n```\n12 ms\n```\n",
])
def test_numbers_that_prose_may_hold(text):
    notebook = good_notebook()
    notebook.cells[20].source += text
    assert found(notebook) == ""


@pytest.mark.parametrize("text", [
    "import sys\nsys.path.append('..')", "# Open a terminal", "# open a new terminal", "%pip list",
    "torch.cuda.is_available()", "folder = '/" + "work/main'",
])
def test_forbidden_wording(text):
    notebook = good_notebook()
    notebook.cells[8].source = text
    assert "does not belong in a notebook" in found(notebook)


def test_allowed_wording():
    notebook = good_notebook()
    notebook.cells[8].source = "url = 'https://example.org/work'  # networks, /workers"
    assert found(notebook) == ""


def test_solution_not_collapsed():
    notebook = good_notebook()
    notebook.cells[2].metadata["jupyter"] = {"source_hidden": False}
    assert "3: a solution that is not collapsed" in found(notebook)


@pytest.mark.parametrize("source", ["answer = 3", "check.layers(3)\nprint('done')", ""])
def test_solution_without_a_check(source):
    notebook = good_notebook()
    notebook.cells[2].source = source
    assert "3: a solution that does not end in a call on check." in found(notebook)


def test_exercise_without_a_solution():
    notebook = good_notebook()
    notebook.cells[2] = code("print(3)")
    assert "check.layers has no solution after it" in found(notebook)


def test_solution_before_its_exercise():
    notebook = good_notebook()
    notebook.cells[1:3] = notebook.cells[2:0:-1]
    assert "2: a solution to check.layers with no exercise before it" in found(notebook)
    assert "check.layers has no solution after it" in found(notebook)


def test_solution_with_another_check():
    notebook = good_notebook()
    notebook.cells[2].source = "check.bits(16)"
    assert "a solution to check.bits with no exercise before it" in found(notebook)


def test_exercise_with_its_answer_left_in():
    notebook = good_notebook()
    notebook.cells[1].source = "answer = 3\ncheck.layers(answer)"
    assert "2: check.layers in a cell that leaves no '...'" in found(notebook)


def test_too_few_exercises():
    notebook = good_notebook()
    del notebook.cells[3:7]
    assert "1 exercises, fewer than 3" in found(notebook)
    assert "fewer than" not in found(notebook, "00_start_here")


def test_code_that_does_not_parse():
    notebook = good_notebook()
    notebook.cells[8].source = "if True print(3)"
    assert "9: not valid Python" in found(notebook)


def test_ipython_lines_parse():
    notebook = good_notebook()
    notebook.cells[8].source = "!curl -s localhost:8000/v1/models \\\n  | python3 -m json.tool"
    notebook.cells[7].source = "%%bash\nls | wc -l"
    assert found(notebook) == ""


def test_main_prints_and_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(style, "ROOT", tmp_path)
    assert style.main() is False
    (tmp_path / "labs").mkdir()
    notebook = good_notebook()
    notebook.cells[8].source = "%pip list"
    nbformat.write(notebook, tmp_path / "labs" / "02_mps.ipynb")
    assert style.main() is True
    assert capsys.readouterr().out == (
        "labs/02_mps.ipynb, cell 9: '%pip' does not belong in a notebook\n")


def test_every_notebook_keeps_the_rules():
    books = style.notebooks()
    if not books:
        print("There are no notebooks yet, so there is nothing to check.")
    wrong = [f"{name}, cell {number}: {what}" for name, notebook in books.items()
             for number, what in style.violations(notebook, name)]
    assert not wrong, "\n".join(wrong)


# Strings of the machines that the course was written on; none may reach a reader.
PRIVATE = ["/" + "work/", ".." + "/shared", "/opt/" + "wheels", "." + "library"]


def private_strings(text):
    return [string for string in PRIVATE if string in text]


def test_private_strings_are_found():
    assert private_strings("see /" + "work/main") == ["/" + "work/"]
    assert private_strings("see https://example.org/works/, .github/workflows") == []


def test_no_tracked_file_holds_a_private_string():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=style.ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no list of tracked files")
    wrong = {}
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = style.ROOT / name
        data = path.read_bytes() if path.is_file() else b"\0"
        if b"\0" not in data and (strings := private_strings(data.decode(errors="replace"))):
            wrong[name] = strings
    assert not wrong
