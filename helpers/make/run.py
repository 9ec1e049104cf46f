"""`make run`: executes the course headless, and reports on it in results/report.html.

    python -m helpers.make.run                    # every lesson, then every lab
    python -m helpers.make.run 01 labs/02 my.ipynb
    python -m helpers.make.run labs               # every lab

Each notebook runs in a fresh kernel, in its own folder, with the real engine. Executed copies go
to results/executed, as notebooks and as pages. The exit status is 1 if any did not pass, 2 if a
name is not known, 130 after Ctrl-C, which ends the kernel and its engines and still reports.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from helpers import provenance
from helpers.make import report
from helpers.make.leftovers import Watch
from helpers.progress import Line

ROOT = provenance.ROOT
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Outcome:
    """How one notebook went. Cells count from 1, markdown included."""

    name: str
    path: Path
    cells: int
    state: str = "not run"  # ok, failed, timed out, interrupted
    seconds: float = 0.0
    cells_run: int = 0
    cell: int = 0  # the cell that failed; 0 where none did
    source: str = ""  # of that cell
    message: str = ""

    def fail(self, state, message, cell=None):
        self.state, self.message = state, message
        if cell is not None:
            self.cell, self.source = self.cells_run + 1, cell.source


def known():
    """Every notebook of the course, in order."""
    return [*sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("labs/*.ipynb"))]


def chosen(names):
    """The notebooks that the names mean, each once; all if there are no names. Raises as `find`."""
    paths = [path for name in names for path in
             ([path for path in known() if path.parent.name == name] or [find(name)])]
    return list(dict.fromkeys(paths)) if names else known()


def find(name):
    """The notebook that a name means: a path, '01_first_request', '01' (a lesson), 'labs/01'.

    Raises LookupError with what there is.
    """
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name).resolve()
    folder, _, stem = name.removesuffix(".ipynb").rpartition("/")
    for path in known():
        if folder in ("", path.parent.name) and (path.stem + "_").startswith(stem + "_"):
            return path
    there = "\n".join(f"  {path.relative_to(ROOT)}" for path in known()) or "  none yet"
    raise LookupError(f"There is no notebook {name!r}. There are:\n{there}")


class Runner:
    """Runs notebooks one after the other; `stop` is what Ctrl-C calls."""

    def __init__(self, folder, timeout_s):
        self.folder, self.timeout_s = Path(folder), timeout_s
        self.interrupted, self.task = False, None

    def stop(self):
        if not self.interrupted:
            print("\nInterrupted: ending the kernel and its engines ...", file=sys.stderr)
            self.interrupted = True
            if self.task:
                self.task.cancel()

    async def run_all(self, paths, exitfirst):
        """The outcome of each notebook, those not reached included."""
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        read = [(path, nbformat.read(path, as_version=4)) for path in paths]
        outcomes = [Outcome(path.stem, path, len(notebook.cells)) for path, notebook in read]
        for (_, notebook), outcome in zip(read, outcomes, strict=True):
            await self.run(notebook, outcome)
            if self.interrupted or (exitfirst and outcome.state != "ok"):
                break
        return outcomes

    async def run(self, notebook, outcome):
        """Execute one notebook, write its copies, and note in `outcome` how it went."""
        started, line, watch = time.monotonic(), Line(), Watch()
        client = NotebookClient(
            notebook, kernel_name="python3", timeout=self.timeout_s, startup_timeout=120,
            coalesce_streams=True, resources={"metadata": {"path": str(outcome.path.parent)}})
        self.task = asyncio.create_task(self._cells(client, outcome, watch))
        while not (await asyncio.wait([self.task], timeout=0.5))[0]:
            at = min(outcome.cells_run + 1, outcome.cells)
            line.update(f"{outcome.name}: cell {at} of {outcome.cells}, {line.elapsed_s:.0f} s")
        self.task = None
        left = await asyncio.to_thread(watch.wait_gone)
        if left:
            watch.end()
            what = ", ".join(f"{name} ({pid})" for pid, name in left.items())
            outcome.fail("failed" if outcome.state == "ok" else outcome.state, "\n".join([
                outcome.message, f"Still running after the kernel had ended, now killed: {what}"]))
        outcome.seconds = time.monotonic() - started
        self._write(notebook, outcome)
        line.done(f"{outcome.name}: {outcome.state} after {outcome.seconds:.0f} s")

    async def _cells(self, client, outcome, watch):
        """Run the cells in a kernel that has ended when this returns; never raises."""
        cell, clean, log = None, False, self.folder / "logs" / f"kernel-{outcome.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            client.create_kernel_manager()
            with open(log, "wb") as stderr:  # what the kernel itself prints: why it died
                await client.async_start_new_kernel(env=watch.env, stderr=stderr)
            await client.async_start_new_kernel_client()
            for index, cell in enumerate(client.nb.cells):
                await client.async_execute_cell(
                    cell, index, execution_count=client.code_cells_executed + 1)
                watch.look()
                if _no_error(cell):
                    outcome.fail("failed", "It is tagged raises-exception and raised none.", cell)
                    break
                outcome.cells_run += 1
            else:
                outcome.state = "ok"
            client.set_widgets_metadata()
            clean = True
        except (Exception, asyncio.CancelledError) as error:
            self._explain(error, outcome, cell, log)
        finally:
            with contextlib.suppress(Exception):  # what is left is found and killed afterwards
                await _end_kernel(client, now=not clean)

    def _explain(self, error, outcome, cell, log):
        """Put a notebook's end into words."""
        if self.interrupted:
            outcome.fail("interrupted", "Interrupted here.", cell)
        elif isinstance(error, CellExecutionError):
            outcome.fail("failed", f"{error.ename}: {error.evalue}", cell)
        elif isinstance(error, CellTimeoutError):
            outcome.fail("timed out", f"The cell was not done after {self.timeout_s} s and was "
                                      "stopped. If it needs longer, give --timeout.", cell)
        elif isinstance(error, DeadKernelError):
            said = [line for line in log.read_text(errors="replace").splitlines()
                    if "over TCP without encryption" not in line]
            what = "The kernel died in this cell: killed, out of memory, or a crash."
            outcome.fail("failed", "\n".join([what, *said[-8:]]), cell)
        else:
            outcome.fail("failed", f"{type(error).__name__}: {error}", cell)

    def _write(self, notebook, outcome):
        """The executed copies, as far as the notebook got."""
        path = self.folder / "executed" / f"{outcome.name}.ipynb"
        report.write(path, nbformat.writes(notebook) + "\n")
        report.write(path.with_suffix(".html"), report.notebook_html(notebook, outcome.name))


def _no_error(cell):
    """True for an executed cell that should have raised an exception and did not."""
    return ("raises-exception" in cell.metadata.get("tags", []) and cell.cell_type == "code"
            and not any(output.output_type == "error" for output in cell.outputs))


async def _end_kernel(client, now):
    """Shut the kernel down (or kill it, `now`) and close the connections to it."""
    if client.km and client.km.has_kernel:
        await client.km.shutdown_kernel(now=now)
    if client.kc:
        client.kc.stop_channels()


def main(arguments=None):
    """Run what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m helpers.make.run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="notebooks, or `labs`; all, if none is named")
    parser.add_argument("--timeout", type=int, default=1200, help="seconds a cell may take")
    parser.add_argument("--exitfirst", action="store_true", help="stop at the first that fails")
    parser.add_argument("--results", default=ROOT / "results", help="the folder to write to")
    options = parser.parse_args(arguments)
    try:
        paths = chosen(options.names)
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if not paths:
        print("There is no notebook in notebooks/ or labs/.", file=sys.stderr)
        return 2
    runner, when = Runner(options.results, options.timeout), datetime.now(UTC)
    outcomes = asyncio.run(runner.run_all(paths, options.exitfirst))
    page = report.write_report(options.results, outcomes, provenance.machine(),
                               provenance.software(), when)
    print(f"\n{report.summary(outcomes)}\n\nReport: {page}")
    if runner.interrupted:
        return 130
    return int(any(outcome.state != "ok" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
