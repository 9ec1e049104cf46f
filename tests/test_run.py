"""`make run` on tiny notebooks: what it reports, what it writes, and that nothing is left."""

import re
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from nbformat import v4

from helpers.make import report, run
from helpers.make.leftovers import Watch

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
WIDGET = "import ipywidgets\nipywidgets.IntSlider(description='live')"
STUBBORN = """import time
open('ready', 'w').close()
while True:
    try: time.sleep(1)
    except KeyboardInterrupt: pass"""
SLEEPER = "import subprocess\nsubprocess.Popen(['sleep', '98765'], start_new_session=True);"


def notebook(path, *cells):
    """Write a notebook of these code cells; '# ...' is markdown, '! ...' may raise. Its path."""
    made = v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python"}})
    for number, text in enumerate(cells):
        tags = ["raises-exception"] if text.startswith("! ") else []
        new = v4.new_markdown_cell if text.startswith("# ") else v4.new_code_cell
        made.cells.append(new(text.removeprefix("! "), id=f"cell-{number}",
                              metadata={"tags": tags}))
    nbformat.write(made, path)
    return path


def command(folder, *arguments):
    return [sys.executable, "-m", "helpers.make.run", "--results", str(folder / "results"),
            *map(str, arguments)]


def run_it(folder, *arguments):
    """(exit status, what it printed, the report's HTML)."""
    done = subprocess.run(command(folder, *arguments), capture_output=True, text=True, timeout=120)
    page = folder / "results" / "report.html"
    return done.returncode, done.stdout + done.stderr, page.read_text() if page.exists() else ""


def executed(folder, name):
    return nbformat.read(folder / "results" / "executed" / f"{name}.ipynb", as_version=4)


def test_a_course_that_passes(tmp_path):
    here = "import os; os.path.basename(os.getcwd())"
    first = notebook(tmp_path / "first.ipynb", "# Title", here, "print('a')\nprint('b')", "! 1 / 0",
                     PLOT, WIDGET)
    second = notebook(tmp_path / "second.ipynb", "'fresh' if 'os' not in dir() else 'used'")
    before = first.read_bytes()
    status, printed, page = run_it(tmp_path, first, second)
    assert status == 0, printed
    assert re.search(r"first +ok +0\.\d +6 of 6\nsecond +ok", printed), printed
    cells = executed(tmp_path, "first").cells
    assert cells[1].outputs[0].data["text/plain"] == repr(tmp_path.name)
    assert [output.text for output in cells[2].outputs] == ["a\nb\n"]
    assert cells[3].outputs[0].ename == "ZeroDivisionError" and cells[3].execution_count == 3
    assert "fresh" in executed(tmp_path, "second").cells[0].outputs[0].data["text/plain"]
    assert first.read_bytes() == before
    assert "all passed" in page and 'href="executed/first.html"' in page
    made = (tmp_path / "results" / "executed" / "first.html").read_text()
    assert "data:image/png;base64" in made
    assert "widget-view" not in made and "IntSlider(" not in made


def test_a_failure_is_shown_and_the_rest_still_runs(tmp_path):
    error = "from helpers.errors import LabError\nraise LabError('No <tea>', fix='Make it.')"
    bad = notebook(tmp_path / "bad.ipynb", "# Title", "x = 1", error, "y = 2")
    tame = notebook(tmp_path / "tame.ipynb", "! 'this was to raise'")
    good = notebook(tmp_path / "good.ipynb", "1")
    status, printed, page = run_it(tmp_path, bad, tame, good)
    assert status == 1
    assert re.search(r"bad +failed +0\.\d +2 of 4\n +cell 3: LabError: No <tea>\n"
                     r" +What to do: Make it", printed), printed
    assert re.search(r"tame +failed.*\n +cell 1: It is tagged raises-exception and raised none",
                     printed)
    assert re.search(r"good +ok", printed)
    assert "raise LabError(&#x27;No &lt;tea&gt;" in page and "LabError: No &lt;tea&gt;" in page
    cells = executed(tmp_path, "bad").cells
    assert cells[2].outputs[0].ename == "LabError" and cells[3].execution_count is None


def test_exitfirst_stops_at_the_first_that_fails(tmp_path):
    bad, good = notebook(tmp_path / "bad.ipynb", "1/0"), notebook(tmp_path / "good.ipynb", "1")
    status, printed, page = run_it(tmp_path, "--exitfirst", bad, good)
    assert status == 1 and re.search(r"good +not run", printed), printed
    assert "good.html" not in page


def test_a_cell_that_hangs_is_stopped(tmp_path):
    path = notebook(tmp_path / "stuck.ipynb", "1", "print('before', flush=True)\nwhile True: pass")
    status, printed, _ = run_it(tmp_path, "--timeout", "2", path)
    assert status == 1
    assert re.search(r"stuck +timed out.*\n +cell 2: The cell was not done after 2 s", printed)
    assert executed(tmp_path, "stuck").cells[1].outputs[0].text == "before\n"


def test_what_a_kernel_leaves_running_is_a_failure_and_is_killed(tmp_path):
    path = notebook(tmp_path / "messy.ipynb", SLEEPER)
    status, printed, _ = run_it(tmp_path, path)
    assert status == 1, printed
    pid = int(re.search(r"Still running after the kernel had ended.*sleep \((\d+)\)", printed)[1])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_kernel_that_dies_is_explained(tmp_path):
    path = notebook(tmp_path / "dead.ipynb", "import os", "os.abort()")
    status, printed, _ = run_it(tmp_path, path)
    assert status == 1 and "cell 2: The kernel died in this cell" in printed
    assert "TCP" not in printed and executed(tmp_path, "dead").cells[0].execution_count == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reports_and_leaves_nothing(tmp_path, number):
    """In a cell that itself ignores the interrupt."""
    path = notebook(tmp_path / "busy.ipynb", "print('here', flush=True)", STUBBORN)
    other = notebook(tmp_path / "other.ipynb", "1")
    watch = Watch()
    process = subprocess.Popen(command(tmp_path, path, other), env=watch.env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == 130, printed
    assert re.search(r"busy +interrupted +0\.\d +1 of 2", printed), printed
    assert re.search(r"other +not run", printed)
    assert executed(tmp_path, "busy").cells[0].outputs[0].text == "here\n"
    assert (tmp_path / "results" / "report.html").exists()
    assert not watch.look()


def test_names(tmp_path, monkeypatch):
    for name in ("notebooks/01_first", "notebooks/010_last", "labs/01_two", "labs/02_mps"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        notebook(tmp_path / f"{name}.ipynb", "1")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    for name, expected in [("01", "notebooks/01_first"), ("01_first", "notebooks/01_first"),
                           ("labs/01", "labs/01_two"), ("02_mps", "labs/02_mps"),
                           ("02", "labs/02_mps"),
                           ("notebooks/010_last.ipynb", "notebooks/010_last"),
                           (str(tmp_path / "labs" / "01_two.ipynb"), "labs/01_two")]:
        assert run.find(name) == (tmp_path / f"{expected}.ipynb").resolve()
    with pytest.raises(LookupError, match="no notebook '03'(.|\n)*notebooks/01_first.ipynb"):
        run.find("03")
    assert [path.stem for path in run.known()] == ["010_last", "01_first", "01_two", "02_mps"]
    assert [path.stem for path in run.chosen(["labs/02", "labs"])] == ["02_mps", "01_two"]
    assert run.chosen([]) == run.known()


def test_an_unknown_name_is_said(tmp_path):
    status, printed, page = run_it(tmp_path, "99_nothing")
    assert status == 2 and "There is no notebook '99_nothing'" in printed and not page


def test_the_report_of_a_gpu_machine():
    outcome = run.Outcome("a&b", None, 4, "ok", 90.0, 4)
    machine = {"id": "gpu-x", "cpu": "c", "cores": 8, "memory_bytes": 2**33, "gpu": "NVIDIA H200",
               "driver": "580.1"}
    software = {"os": "o", "kernel": "k", "python": "3.11", "commit": None, "changed": None,
                "packages": {"vllm": "0.30.0", "guidellm": None}}
    page = report.report_html([outcome], machine, software, run.datetime.now(run.UTC))
    assert "a&amp;b" in page and "1.5" in page and "NVIDIA H200, driver 580.1" in page
    assert "guidellm not installed" in page and "http" not in page
