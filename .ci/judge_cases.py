"""Judges the results of the shared cases: fails if a case whose policy is finished did not pass.

usage: judge_cases.py CASES.jsonl RESULTS.json
"""

import json
import sys
from pathlib import Path

FINISHED = {"none", "truncate", "compress", "context_window"}
"""The trimmers whose cases must all pass; cases of others are only reported."""


def trimmers(case: dict[str, dict[str, object]]) -> set[str]:
    """Return the names of the trimmers of a case's policy."""
    strategy = case["policy"].get("strategy", "context_window")
    return set(strategy) if isinstance(strategy, list) else {str(strategy)}


def main(cases_file: str, results_file: str) -> int:
    """Print the totals and each failure; return 1 if one of a finished policy is among them."""
    cases = {case["id"]: case for case in map(json.loads, Path(cases_file).read_text("utf-8").splitlines())}
    results = json.loads(Path(results_file).read_text("utf-8"))
    required = [result for result in results if trimmers(cases[result["id"]]) <= FINISHED]
    failed = [result for result in required if not result["ok"]]
    for result in results:
        if not result["ok"]:
            word = "FAILED" if result in failed else "not yet"
            print(f"{word}: {result['id']}: {'; '.join(': '.join(reason) for reason in result['failed'])[:300]}")
    passed = sum(result["ok"] for result in results)
    print(f"cases: {passed}/{len(results)}; of finished policies {len(required) - len(failed)}/{len(required)}")
    return 1 if failed or not required else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
