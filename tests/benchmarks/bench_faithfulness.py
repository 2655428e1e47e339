"""What stands in the place of heads of three real models: the tables of notebooks/models_found.md.

    PYTHONPATH=tests/support python tests/benchmarks/bench_faithfulness.py rxnmapper      (or minilm, anarcii)
    PYTHONPATH=tests/support python tests/benchmarks/bench_faithfulness.py anarcii --layers --draws 2

Eight heads, each of them alone and all at once, made of 300 choices each, in three draws; then the damage without each
of the leading singular directions of the two that matter most.  With --layers all heads of the model, up to each layer;
choices are then queries that give one token more than half of their attention, so that soft heads have some.  Writes
results/faithfulness_NAME.json, or layers_NAME.json.
"""

import argparse
import dataclasses
import time

import attsvm.torch
import real_models
import torch
from machine import write

SOFT = 0.5  # of its attention, more than which a query of --layers gives to the token that is its choice
MATTER = 2  # heads whose directions are taken away


def every(k, batch):
    """Every k-th input of a batch."""
    return {name: x[::k] for name, x in batch.items()} if isinstance(batch, dict) else tuple(x[::k] for x in batch)


def numbers(table):
    """Of each place and column: damage, what each draw recovers, and the standard error over inputs."""
    return [
        {"place": row, "column": column, "damage": float(damage.mean()),
         "recovered": (1 - damage.mean(axis=1) / table.importance(row)).tolist(),
         "error_of_inputs": table.spread(row, column, queries)[1]}
        for (row, column, queries), damage in table.damages.items()
    ]  # fmt: skip


def measured(name, layers, choices, draws, thinned):
    begin, real = time.process_time(), real_models.MODELS[name]()
    found = real.read(threshold=SOFT) if layers else real.chosen()
    held_out = [every(thinned, batch) for batch in real.held_out]
    options = {"queries": (choices,), "n_jobs": 1, **real.options}
    table = attsvm.torch.faithfulness(
        real.model, found, held_out, seeds=draws, rows="layers" if layers else "heads", **options
    )
    print(table, flush=True)
    about = {"model": name, "choices": choices, "every": thinned, "threshold": found[0].threshold}
    about["heads"] = [
        {"head": label, "hard": table.hard[label], "rule": rule, "follows": follows if table.hard[label] else None}
        for label, (rule, follows) in table.rules.items()
    ]
    if not layers:
        two = sorted(found, key=lambda head: -table.importance(head.label))[:MATTER]
        alone = attsvm.torch.faithfulness(real.model, two, held_out, seeds=1, directions=True, **options)
        print(alone, flush=True)
        about["directions"] = [
            {**dataclasses.asdict(lost), "importance": alone.importance(lost.label)} for lost in alone.directions
        ]
    return {**about, "seconds": time.process_time() - begin, "table": numbers(table)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=tuple(real_models.MODELS))
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--choices", type=int, default=300)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="of the held-out inputs of each batch (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    row = measured(args.model, args.layers, args.choices, args.draws, args.every)
    print(write(f"{'layers' if args.layers else 'faithfulness'}_{args.model}", [row]))


if __name__ == "__main__":
    main()
