"""How often an honest run of ``attsvm reproduce`` fails by chance: reports resampled from a pool of runs.

By hand, ``python tests/support/chance_of_failure.py [FIGURE ...]``, about an hour on two cores.  Of every figure a pool
of runs is made once (kept in ``build/claims``); a report draws its runs from the pool with replacement, and fails where
a claim of any figure does.  The page says the two shares printed last.
"""

import pickle
import sys
import warnings
from collections import Counter

import numpy as np
from attsvm.claims.intervals import binomial_interval
from attsvm.reproduce import FIGURES, load, measure
from places import ROOT

POOL, SEED = 400, 424_242
REPORTS = {"QUICK": 400, "RUNS": 400}


def pool(name):
    path = ROOT / "build" / "claims" / f"{name}.pickle"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(measure(name, max(POOL, load(name).RUNS), SEED)))
    return pickle.loads(path.read_bytes())


def reports(name, setting, how_many):
    """Which of the resampled reports of a figure have a claim that fails, and the verdicts of each claim."""
    figure, results = load(name), pool(name)
    runs, whole = getattr(figure, setting), max(POOL, figure.RUNS)
    rng, failed, verdicts = np.random.default_rng(SEED), np.zeros(how_many, dtype=bool), {}
    for i in range(how_many):
        taken = rng.integers(whole, size=runs)
        drawn = {
            key: numbers[taken if len(numbers) == whole else rng.integers(len(numbers), size=len(numbers))]
            for key, numbers in results.items()
        }
        for heading, claims in figure.claims(drawn).items():
            for claim in claims:
                verdicts.setdefault(f"{heading}: {claim.text.partition(' (')[0]}", Counter())[claim.verdict] += 1
                failed[i] |= claim.verdict == "fails"
    return failed, verdicts


def main(names):
    warnings.simplefilter("ignore")
    for setting, how_many in REPORTS.items():
        failed = np.zeros(how_many, dtype=bool)
        for name in names:
            of_figure, verdicts = reports(name, setting, how_many)
            failed |= of_figure
            print(f"{setting} {name}: {of_figure.sum()} of {how_many} reports fail", flush=True)
            for text, found in verdicts.items():
                if found["fails"]:
                    print(f"    {found['fails']} fail: {text}")
        low, high = binomial_interval(int(failed.sum()), how_many)
        print(f"{setting}: {failed.mean():.4f} [{low:.4f}, {high:.4f}] of {how_many} reports fail", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(FIGURES))
