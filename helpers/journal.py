"""What a long measurement has finished so far, on the disk, so that it can go on after a break."""

import hashlib
import json
import shutil

import pandas as pd

from helpers.provenance import ROOT

PARTIAL = ROOT / "results" / "partial"


class Journal:
    """The finished turns of one measurement, in results/partial/NAME-KEY until it is recorded."""

    def __init__(self, name, settings):
        """settings: whatever makes it the same measurement; with others it begins anew."""
        text = json.dumps(settings, sort_keys=True, default=str)
        self.folder = PARTIAL / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.done = max((int(file.stem) + 1 for file in self._files()), default=0)
        if self.done:
            print(f"Going on after turn {self.done}: the turns before it are in {self.folder}. "
                  "Delete that folder to begin anew.")

    def _files(self):
        return sorted(self.folder.glob("*.pkl"))

    def frames(self):
        """The DataFrames of the finished turns, in order."""
        return [pd.read_pickle(file) for file in self._files()]

    def keep(self, turn, frame):
        """Write a finished turn, numbered from 0; it is whole or not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / "half-written"
        frame.to_pickle(half)
        half.rename(self.folder / f"{turn:04}.pkl")

    def remove(self):
        """Forget them: the measurement is recorded."""
        shutil.rmtree(self.folder, ignore_errors=True)
