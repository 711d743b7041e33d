"""Reads stalls that were written down: where the event loop stood when it was busy, the most frequent first."""

import re
from collections import Counter
from pathlib import Path

FRAME = re.compile(r'  File "(.*)", line (\d+) in (\S+)')
DUMP = "Timeout ("
SHOWN_FRAMES = 4
SHOWN_PLACES = 10
IDLE = "runners.py"  # the loop itself, in no callback


def places(dumps: str) -> list[tuple[int, str]]:
    """Return how often the loop was found at which place; a place is its innermost frames, the innermost first."""
    found = Counter(place for dump in dumps.split(DUMP)[1:] if (place := _place(dump)))
    return [(times, place) for place, times in found.most_common(SHOWN_PLACES)]


def _place(dump: str) -> str:
    """Return the innermost frames of the thread of the loop, which is written last."""
    frames = FRAME.findall(dump.rpartition("Thread ")[2])
    if frames and Path(frames[0][0]).name == IDLE:
        return "in no callback: it waited for the processor, or for the interpreter's lock"
    return " < ".join(f"{Path(file).name}:{line} {function}" for file, line, function in frames[:SHOWN_FRAMES])
