"""Mutation score of the pure decision modules, from what ``mutmut run`` left behind: ``make mutation``.

A mutant is caught when a test fails, or never ends; it survives when all tests pass, and when no test ever reaches it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from mutmut.stats import status_by_exit_code

from benchmarks.figures import keep_figures

ROOT = Path(__file__).resolve().parent.parent
GOAL = 0.80
CAUGHT = ("killed", "timeout", "suspicious", "segfault", "caught by type check")
SURVIVED = ("survived", "no tests")


def main() -> int:
    """Print the score of each module and of all, keep them, and return 1 below the goal."""
    modules, survivors = {}, []
    for meta in sorted((ROOT / "mutants").rglob("*.py.meta")):
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        count = Counter(status_by_exit_code[code] for code in codes.values())
        caught, survived = sum(count[s] for s in CAUGHT), sum(count[s] for s in SURVIVED)
        name = str(meta.relative_to(ROOT / "mutants")).removesuffix(".meta")
        if caught + survived < len(codes):
            print(f"{name}: {len(codes) - caught - survived} of {len(codes)} were not tried; left out", file=sys.stderr)
            continue
        if codes:
            modules[name] = {"caught": caught, "survived": survived, "score": round(caught / (caught + survived), 4)}
        survivors += [key for key, code in codes.items() if status_by_exit_code[code] in SURVIVED]
    if not modules:
        print("nothing was run: mutmut run", file=sys.stderr)
        return 1
    caught, all_survived = (sum(m[k] for m in modules.values()) for k in ("caught", "survived"))
    score = caught / (caught + all_survived)
    for name, m in modules.items():
        print(f"{name:<36}{m['caught']:>6} caught{m['survived']:>6} survived{m['score']:>9.1%}")
    print(f"{'all':<36}{caught:>6} caught{all_survived:>6} survived{score:>9.1%}   goal {GOAL:.0%}")
    figures = {"score": round(score, 4), "goal": GOAL, "modules": modules, "survivors": sorted(survivors)}
    keep_figures("mutation", figures, ("mutmut", "hypothesis"))
    return 0 if score >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
