"""Drives JupyterLab in headless Chromium, for test_browser.py and by hand.

    python tests/lab_browser.py notebooks/01_first_request.ipynb page.png         # as it is
    python tests/lab_browser.py notebooks/01_first_request.ipynb page.png --run   # run all first

The notebook is opened from a copy of its folder: running it changes no file of the course.
"""

import argparse
import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from helpers.make.leftovers import Watch

CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                  "--disable-background-networking", "--disable-component-update",
                  "--disable-sync"]
SETTINGS = {  # every cell on the page at once (no virtual scrolling), and no pop-ups
    "notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none",
                                                          "scrollPastEnd": False},
    "apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}
PANEL = "document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)')"
CELLS = f"""() => {{
    const models = window.jupyterapp.shell.currentWidget.content.widgets.map(w => w.model.toJSON());
    const code = models.filter(model => model.cell_type === 'code');
    return [...{PANEL}.querySelectorAll('.jp-CodeCell')].map((cell, place) => ({{
        prompt: cell.querySelector('.jp-InputPrompt')?.innerText.trim() ?? '',
        error: code[place].outputs.filter(output => output.output_type === 'error')
            .map(error => error.ename + ': ' + error.evalue).join() }})) }}"""
HEIGHT = f"""() => {{ const notebook = {PANEL}.querySelector('.jp-WindowedPanel-outer');
    notebook.scrollTop = 0; return notebook.scrollHeight + 120; }}"""
IDLE = f"""() => document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')
    && {PANEL}.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'"""


def chromium():
    """The path of a Chromium or Chrome on this machine, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def lab(folder):
    """JupyterLab on 127.0.0.1, serving a copy of `folder`; yields (url, token, watch).

    watch is a `leftovers.Watch` over the server and every kernel. At the end the server is
    stopped as Ctrl-C does, which shuts its kernels down.
    """
    watch, token = Watch(), secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="lab-") as temporary, socket.socket() as probe:
        home = Path(temporary)
        shutil.copytree(folder, home / "course", ignore=shutil.ignore_patterns(".ipynb_*"))
        for name, values in SETTINGS.items():
            file = home / "settings" / "@jupyterlab" / name
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(values))
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        process = _start(home, port, token, watch)
        try:
            _wait_for(f"http://127.0.0.1:{port}/api/status?token={token}", process, home)
            yield f"http://127.0.0.1:{port}", token, watch
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(home, port, token, watch):
    """The server's process; all its files are in `home`."""
    env = watch.env | {f"JUPYTER_{name}_DIR": str(home / name.lower())
                       for name in ("CONFIG", "RUNTIME", "DATA")}
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces")}
    with open(home / "lab.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--allow-root",
             f"--port={port}", "--port-retries=0", f"--IdentityProvider.token={token}",
             f"--ServerApp.root_dir={home / 'course'}", "--LabApp.expose_app_in_browser=True"],
            env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=home)


def _wait_for(url, process, home, seconds=120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return urllib.request.urlopen(url, timeout=5)
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("JupyterLab did not start:\n" + (home / "lab.log").read_text()[-3000:])


@contextmanager
def browser_page(*, width=1200, height=1000):
    """A page of a new headless Chromium. Playwright cannot run where an event loop runs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()


def open_notebook(page, url, token, name):
    """Open a notebook in JupyterLab and wait until it is shown and its kernel is idle."""
    page.goto(f"{url}/lab/tree/{name}?reset&token={token}", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=120_000)
    wait_until(page, lambda: page.evaluate(IDLE), 120, "the kernel was not idle")


def code_cells(page):
    """[{'prompt': '[3]:', 'error': text of an error output or ''}] of every code cell."""
    return page.evaluate(CELLS)


def restart_and_run_all(page, *, seconds=900):
    """Run > Restart Kernel and Run All Cells, confirmed; returns when the last cell is done.

    Returns code_cells(page). Raises TimeoutError if it is not done after `seconds`.
    """
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Restart Kernel and Run All Cells").click()
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    wait_until(page, lambda: _waiting(page), 60, "no cell was started")
    wait_until(page, lambda: not _waiting(page) and page.evaluate(IDLE), seconds,
               "cells were still running")
    page.wait_for_timeout(500)  # the last outputs are being drawn
    return code_cells(page)


def _waiting(page):
    return any("*" in cell["prompt"] for cell in code_cells(page))


def wait_until(page, condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"After {seconds} s {what}.")
        page.wait_for_timeout(200)


def picture(page, path, *, height=None):
    """Save a picture of the notebook: all of it, or of its first `height` pixels."""
    before = page.viewport_size
    for _ in range(3):  # a taller page may lay its cells out taller
        tall = min(height or page.evaluate(HEIGHT), 16000)
        page.set_viewport_size({"width": before["width"], "height": tall})
        page.wait_for_timeout(700)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(path))
    page.set_viewport_size(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--run", action="store_true", help="restart and run all cells first")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, help="pixels; all of it, if left out")
    options = parser.parse_args()
    with lab(options.notebook.parent) as (url, token, _), \
            browser_page(width=options.width) as page:
        open_notebook(page, url, token, options.notebook.name)
        if options.run:
            for cell in restart_and_run_all(page):
                print(cell["prompt"], cell["error"])
        picture(page, options.picture, height=options.height)


if __name__ == "__main__":
    main()
