"""Checks that no source file is longer than 400 lines and no function longer than 50."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("proxy", "middleware", "storage", "policies", "scripts", "bench")
FILE_LINES = 400
FUNCTION_LINES = 50


def too_long(path: Path) -> Iterator[str]:
    """Yield a line for the file and for each function in it that is over its limit."""
    text = path.read_text("utf-8")
    lines = text.count("\n")
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, {FILE_LINES} allowed"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, {FUNCTION_LINES} allowed"


def main() -> int:
    """Print what is too long under the working directory; return 1 if there is anything, or nothing to look at."""
    paths = [path for folder in FOLDERS for path in sorted(Path(folder).rglob("*.py"))]
    found = [line for path in paths for line in too_long(path)]
    print("\n".join(found) or f"{len(paths)} files, none too long")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
