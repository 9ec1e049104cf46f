"""One line of progress, updated in place, in a notebook, a terminal or a log; a small table."""

import html
import sys
import time


class Line:
    """A line of text that later text replaces; `elapsed_s` counts from its creation."""

    def __init__(self, text=""):
        self._started = time.monotonic()
        self._shell = _notebook_shell()
        self._handle = None
        self._shown = None
        if text:
            self.update(text)

    @property
    def elapsed_s(self):
        return time.monotonic() - self._started

    def update(self, text):
        """Replace the line. A log (neither notebook nor terminal) gets no repeats."""
        if text == self._shown:
            return
        first, self._shown = self._shown is None, text
        if self._shell:
            self._display(text)
        elif sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif first:
            print(text, file=sys.stderr, flush=True)

    def done(self, text):
        """Show the last text and leave it there."""
        if self._shell or sys.stderr.isatty():
            self.update(text)
        elif text != self._shown:
            print(text, file=sys.stderr, flush=True)
        if not self._shell and sys.stderr.isatty():
            print(file=sys.stderr, flush=True)

    def _display(self, text):
        from IPython.display import display

        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def html_table(rows):
    """A small HTML table of {name: text}, for the repr of an object in a notebook."""
    cells = "".join(
        f"<tr><th style='text-align:left;vertical-align:top'>{html.escape(key)}</th>"
        f"<td style='text-align:left;white-space:pre-wrap'>{html.escape(value)}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table>{cells}</table>"


def _notebook_shell():
    """The running notebook kernel's shell, or None in a script or a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if shell is not None and hasattr(shell, "kernel") else None
