"""Lesson 01 as a reader meets it: run from JupyterLab's menu, no error shown.

LAB_THOROUGH=1 restarts it and runs it once more in the same window.
"""

import os
import time
from pathlib import Path

import lab_browser
import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSON = ROOT / "notebooks" / "01_first_request.ipynb"
PICTURES = ROOT / "results" / "screenshots"
TURNS = ("first", "second") if os.environ.get("LAB_THOROUGH") else ("first",)
NO_CHROMIUM = "no Chromium or Chrome on this machine (Debian, Ubuntu: apt-get install chromium)"


def assert_finished(cells, notebook):
    """Every code cell of the page has its number, and only a deliberate failure shows an error.

    A folded cell (a solution) shows no number; the one after it shows that it was run.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == len(code)
    for number, (shown, cell) in enumerate(zip(cells, code, strict=True), 1):
        folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        deliberate = "raises-exception" in cell.metadata.get("tags", [])
        assert not shown["error"] or deliberate, f"cell [{number}]: {shown['error']}"
        assert folded or shown["prompt"] == f"[{number}]:", f"{shown['prompt']} of {cell.source!r}"


@pytest.mark.skipif(lab_browser.chromium() is None, reason=NO_CHROMIUM)
def test_lesson_01_runs_in_jupyterlab():
    notebook = nbformat.read(LESSON, as_version=4)
    with lab_browser.lab(LESSON.parent) as (url, token, watch), lab_browser.browser_page() as page:
        lab_browser.open_notebook(page, url, token, LESSON.name)
        for turn in TURNS:
            started = time.monotonic()
            try:
                assert_finished(lab_browser.restart_and_run_all(page), notebook)
            finally:
                lab_browser.picture(page, PICTURES / f"01_first_request-{turn}.png")
            print(f"{turn} run: {time.monotonic() - started:.0f} s")
    assert not watch.wait_gone()


@pytest.mark.skipif(lab_browser.chromium() is None, reason=NO_CHROMIUM)
def test_a_page_with_an_error_is_seen(tmp_path):
    """What is written to stderr is none; an exception is one, and what follows it is not run."""
    v4 = nbformat.v4
    sources = ["import sys; print('loud', file=sys.stderr)",
               "from helpers.errors import LabError; raise LabError('Out of tea.')", "1"]
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources], metadata={
        "kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}})
    nbformat.write(notebook, tmp_path / "bad.ipynb")
    with lab_browser.lab(tmp_path) as (url, token, watch), lab_browser.browser_page() as page:
        lab_browser.open_notebook(page, url, token, "bad.ipynb")
        cells = lab_browser.restart_and_run_all(page)
    assert cells == [{"prompt": "[1]:", "error": ""},
                     {"prompt": "[2]:", "error": "LabError: Out of tea."},
                     {"prompt": "[ ]:", "error": ""}]
    with pytest.raises(AssertionError, match="Out of tea"):
        assert_finished(cells, notebook)
    assert not watch.wait_gone()


@pytest.mark.parametrize("cells, wrong", [
    ([{"prompt": "[1]:", "error": ""}, {"prompt": "", "error": ""},
      {"prompt": "[3]:", "error": "E"}], None),
    ([{"prompt": "[1]:", "error": "NameError"}, {"prompt": "", "error": ""},
      {"prompt": "[3]:", "error": ""}], r"cell \[1\]: NameError"),
    ([{"prompt": "[1]:", "error": ""}, {"prompt": "", "error": ""},
      {"prompt": "[ ]:", "error": ""}], r"\[ \]: of 'c'"),
    ([{"prompt": "[1]:", "error": ""}], "1 == 3"),
])
def test_what_counts_as_finished(cells, wrong):
    v4 = nbformat.v4
    notebook = v4.new_notebook(cells=[
        v4.new_markdown_cell("# Title"), v4.new_code_cell("a"),
        v4.new_code_cell("b", metadata={"jupyter": {"source_hidden": True}}),
        v4.new_code_cell("c", metadata={"tags": ["raises-exception"]})])
    if wrong is None:
        return assert_finished(cells, notebook)
    with pytest.raises(AssertionError, match=wrong):
        assert_finished(cells, notebook)
