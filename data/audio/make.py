"""Speaks each NAME.txt here into NAME.ogg: python data/audio/make.py (needs espeak-ng).

16,000 samples a second, one channel: what Whisper hears, so that nothing has to be resampled.
"""

import subprocess
import tempfile
from pathlib import Path

import soundfile
import soxr

SAMPLES_PER_S = 16_000

for script in sorted(Path(__file__).parent.glob("*.txt")):
    with tempfile.NamedTemporaryFile(suffix=".wav") as spoken:
        subprocess.run(["espeak-ng", "-v", "en-gb", "-s", "150", "-f", script, "-w", spoken.name],
                       check=True)
        samples, rate = soundfile.read(spoken.name)
    sound = soxr.resample(samples, rate, SAMPLES_PER_S)
    soundfile.write(script.with_suffix(".ogg"), sound, SAMPLES_PER_S, subtype="VORBIS")
    print(f"{script.stem}: {len(sound) / SAMPLES_PER_S:.1f} s")
