"""Turns what a YAML parser stumbled over into sentences a person can act on; it knows nothing of keys and values.

PyYAML's two parsers put the same fault in different words; each sentence is found by words that both use.
"""

import re

import yaml

# (what the parser says, what is wrong, whether it is wrong where the part began rather than where reading stopped)
_SENTENCES: tuple[tuple[str, str, bool], ...] = (
    (r"end of stream.*quoted", "a quote is opened and not closed", True),
    (r"',' or '\]'", "a list that [ opens is not closed, or lacks a comma between two of its elements", True),
    (r"',' or '\}'", "a mapping that { opens is not closed, or lacks a comma between two of its keys", True),
    (r"node content", "a list that [ opens or a mapping that { opens is not finished", False),
    (r"scanning an (alias|anchor)", "a text that begins with * or & must stand in quotes", False),
    (
        r"undefined alias",
        "no anchor of that name stands above; quote a text that begins with *",
        False,
    ),
    (r"cannot start any token", "a text that begins with @, % or a backquote must stand in quotes", False),
    (
        r"mapping values are not allowed",
        "a colon stands where none may; quote the text, or mend the indentation",
        False,
    ),
    (r"':'.*simple key", "a key lacks its colon, or a text its quotes", False),
    (r"another document", "--- begins a second document, and a file holds one", False),
    (r"merging", "<< takes a mapping, as in <<: *name", False),
    (r"escape|hexdecimal|hexadecimal", "a backslash in double quotes begins no known escape; use single quotes", False),
    (r"incompatible|%YAML|directive", "the line that begins with % is not understood; leave it out", False),
    (
        r"block (mapping|collection|sequence)|expected key|document start",
        "the indentation is not that of the lines above, or something stands after what was already closed",
        False,
    ),
)


def explain_yaml(error: yaml.MarkedYAMLError, text: str) -> tuple[int | None, str]:
    """Return the line (from 1) and the sentence of what keeps a text from being YAML."""
    said = f"{error.problem or ''} {error.context or ''}"
    end, start = error.problem_mark or error.context_mark, error.context_mark or error.problem_mark
    written = text.split("\n")[end.line : end.line + 1] if end is not None else []
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in written):
        return _line(end), "the line is indented with a tab; YAML indents with spaces"
    for pattern, sentence, at_start in _SENTENCES:
        if re.search(pattern, said):
            return _line(start if at_start else end), sentence
    return _line(end), said.strip()


def _line(mark: yaml.Mark | None) -> int | None:
    return mark.line + 1 if mark is not None else None
