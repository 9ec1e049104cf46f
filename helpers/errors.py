"""The one exception of the course: what happened, the likely cause, what to do next."""


class LabError(RuntimeError):
    """An error that a learner can act on.

    what: one sentence, what happened.  cause: the likely reason, if one is known.
    fix: the next step.  log: the last lines of a log, where there is one.
    """

    def __init__(self, what, *, cause="", fix="", log=""):
        self.what, self.cause, self.fix, self.log = what, cause, fix, log
        super().__init__(self._text())

    def _text(self):
        parts = [self.what]
        if self.cause:
            parts.append(f"Likely cause: {self.cause}")
        if self.fix:
            parts.append(f"What to do: {self.fix}")
        if self.log:
            parts.append("Last log lines:")
            parts += [f"  | {line}" for line in self.log.splitlines()]
        return "\n".join(parts)

    def __str__(self):
        return self._text()

    def _render_traceback_(self):
        """IPython shows this in place of a traceback: the message is the lesson."""
        return [f"\x1b[31m{type(self).__name__}\x1b[0m: {self._text()}"]
