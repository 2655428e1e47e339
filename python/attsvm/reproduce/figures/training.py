"""Attention heads of a small GPT in training: weights grow, attention sharpens, some heads turn to their SVM.

A GPT of two layers without MLPs learns to repeat a sequence; all of its weights are trained.  The theorem is about
attention alone, so only some of its statements are observed here.  The norm of W grows together with the share
of hard queries, which give one token more than 0.9 of their attention.  Weight decay shrinks both again once the task
is learnt.  In the first layer W comes closer to the SVM of its own selection than a random head does, in direction and
in margin.  In the second layer W does not go on turning to it, because the layers below change the problem.
"""

import numpy as np
import torch
from torch.nn import functional as F

from ...claims import exactly, median
from ...torch import Monitor
from ..panels import BLUE, ORANGE, band, finish, picture

VOCABULARY, SEGMENT, D, H = 32, 16, 64, 4
BATCH, PROBE, PROBE_SEED = 32, 64, 99
STEPS, EVERY, QUERIES = 800, 200, 200
PAPER = "{NOWHERE}: attention heads of a small GPT while it trains"
CAPTION = """From above, along training (a column an optimiser): norm of W, share of hard queries, correlation with the
SVM of its own choices, and margin. Dotted: a random head with as many hard queries."""
RUNS, QUICK = 6, 2
OPTIMIZERS = {
    "SGD": lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9),
    "AdamW": lambda weights: torch.optim.AdamW(weights, 3e-3, weight_decay=1.0),
}
TITLES = {"SGD": "SGD with momentum", "AdamW": "AdamW, weight decay 1"}
SHOWN = ("norm", "hard", "cosine", "null_cosine", "own", "null_own")
SETTINGS = f"""2 layers of 4 attention heads, d = {D}; sequences of {2 * SEGMENT} tokens out of {VOCABULARY}, a segment
of 8 to 16 said again and again; {STEPS} steps of {BATCH} sequences by SGD (rate 0.1, momentum 0.9) and by AdamW (rate
0.003, weight decay 1).  The SVM of up to {QUERIES} hard queries of {PROBE} other sequences, in the residual space;
beside it a random head (Gaussian K and Q) with as many hard queries."""


class Attention(torch.nn.Module):
    """Causal self-attention of H heads, which reads the layer-normalised input and adds its output to the input."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.LayerNorm(D), torch.nn.Linear(D, 3 * D), torch.nn.Linear(D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class GPT(torch.nn.Module):
    """A transformer without MLPs: token and position embeddings, two layers of attention, a linear decoder."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(VOCABULARY, D), torch.nn.Embedding(2 * SEGMENT, D)
        self.layers = torch.nn.Sequential(Attention(), Attention())
        self.norm, self.decode = torch.nn.LayerNorm(D), torch.nn.Linear(D, VOCABULARY)

    def forward(self, ids):
        return self.decode(self.norm(self.layers(self.tokens(ids) + self.positions.weight[: ids.shape[1]])))


def repeated(n, generator):
    """Draws sequences (n, T) in which a segment of 8 to 16 random tokens repeats.  Returns the sequences, and flags (n,
    T) that are true after the first copy of the segment."""
    T = 2 * SEGMENT
    period = torch.randint(SEGMENT // 2, SEGMENT + 1, (n, 1), generator=generator)
    segment = torch.randint(VOCABULARY, (n, SEGMENT), generator=generator)
    at = torch.arange(T).expand(n, T)
    return segment.gather(1, at % period), at >= period


def loss_of(model, ids, again):
    """Computes the log-loss of a model's next-token predictions for the tokens that repeat an earlier segment."""
    return F.cross_entropy(model(ids)[:, :-1][again[:, 1:]], ids[:, 1:][again[:, 1:]])


def learn(optimizer, seed, steps=STEPS, every=EVERY):
    """Trains a GPT while a monitor measures its heads.  Returns the GPT, the monitor, and the loss of the last step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = GPT()
    probe, said = repeated(PROBE, torch.Generator().manual_seed(PROBE_SEED))
    monitor = Monitor(model, [probe], every=every, queries=QUERIES, loss=lambda model, ids: loss_of(model, ids, said))
    descent = OPTIMIZERS[optimizer](model.parameters())
    for step in range(steps + 1):
        monitor(step)
        loss = loss_of(model, *repeated(BATCH, generator))
        descent.zero_grad()
        loss.backward()
        descent.step()
    return model, monitor, loss.item()


def together(runs, seed):
    """Trains all runs with each optimiser, one run after the other, since PyTorch uses all cores for each."""
    return {optimizer: [measured(optimizer, seed + k) for k in range(runs)] for optimizer in OPTIMIZERS}


def measured(optimizer, seed):
    """Trains a GPT, and returns the loss of the last step and the mean measurements of the heads in each layer."""
    _, monitor, loss = learn(optimizer, seed)
    return {"loss": loss} | {k: {column: means(monitor, k, column) for column in SHOWN} for k in (0, 1)}


def means(monitor, layer, column):
    """Returns, for every check of the monitor, the mean of a column over the heads of a layer; NaN if no head has a
    finite value."""
    values = np.reshape([row[column] for row in monitor.rows if row["layer"] == layer], (-1, H))
    return np.ma.masked_invalid(values).mean(axis=1).filled(np.nan)


def claims(results):
    """Claims that the norm of W and the share of hard queries grow together, and that W turns to its SVM in the first
    layer, if all weights of a model are trained."""
    cosine = results["SGD 1 cosine"]
    turned = cosine[:, -1] - cosine[np.arange(len(cosine)), np.isfinite(cosine).argmax(axis=1)]
    return {
        "The task is learnt": [exactly(f"{name}: largest loss at the end", results[f"{name} loss"].max(), high=0.6)
                               for name in OPTIMIZERS],
        "Norm and sparsity grow together": [
            median("SGD, second layer: norm of W at the end over that at the start",
                   results["SGD 1 norm"][:, -1] / results["SGD 1 norm"][:, 0], 2),
            median("SGD, second layer: share of hard queries at the end", results["SGD 1 hard"][:, -1], 0.1),
            exactly("SGD: largest share of hard queries at the start",
                    max(results[f"SGD {layer} hard"][:, 0].max() for layer in (0, 1)), high=0.01),
        ],
        "Weight decay takes both back": [
            median(f"AdamW, second layer: {text} at the end over its largest", x[:, -1] / x.max(axis=1), high=high)
            for x, text, high in ((results["AdamW 1 norm"], "norm of W", 0.97),
                                  (results["AdamW 1 hard"], "share of hard queries", 0.6))
        ],
        "The first layer turns towards its SVM": [
            median("SGD: cosine of W and its SVM, minus that of a random head",
                   results["SGD 0 cosine"][:, -1] - results["SGD 0 null_cosine"][:, -1], 0.15),
            median("SGD: margin of W, over that of a random head",
                   results["SGD 0 own"][:, -1] / results["SGD 0 null_own"][:, -1], 1.5),
        ],
        "The second does not go on turning": [
            median("SGD: change of the cosine since the first check with hard queries", turned, -0.1, 0.05)
        ],
    }  # fmt: skip


PANELS = {
    "norm": "norm of W",
    "hard": "share of hard queries",
    "cosine": "cosine of W and its SVM",
    "own": "margin of W / best margin",
}


@picture((10, 12), len(OPTIMIZERS), len(PANELS), sharex=True, sharey="row")
def plot(results, *axes):
    """Draws four quantities along training by each optimiser: the norm of W, the share of hard queries, the cosine of W
    with its SVM, and the margin of W."""
    steps = np.arange(0, STEPS + 1, EVERY)
    for column, optimizer in enumerate(OPTIMIZERS):
        for (name, label), row in zip(PANELS.items(), axes, strict=True):
            ax = row[column]
            for key, text, line in ((name, "", "-"), (f"null_{name}", ", random head", ":")):
                for layer, color in enumerate((BLUE, ORANGE)):
                    values = results.get(f"{optimizer} {layer} {key}", np.empty((1, 0)))
                    seen = np.isfinite(values).all(axis=0)
                    if seen.any():
                        band(steps[seen], values[:, seen], f"layer {layer}{text}", ax, color=color, linestyle=line,
                             marker="o", markersize=3)  # fmt: skip
            ax.set_ylim(bottom=0)
            finish(ax, "", ylabel=label)
            if all(len(line.get_xdata()) < 2 for line in ax.lines):
                ax.text(0.5, 0.6, "too few hard queries", transform=ax.transAxes, ha="center", color="0.5")
        axes[0][column].set_title(TITLES[optimizer], loc="left", fontsize=11)
        axes[-1][column].set_xlabel("training step")
    return (
        "Attention heads of a small GPT while it trains",
        f"Mean of {len(results['SGD loss'])} runs over the heads of a layer.  Dotted: a random head.",
    )
