"""The monitor: what it measures, and that the run does not notice it."""

import math
from types import SimpleNamespace

import attsvm.torch
import numpy as np
import pytest
import torch
from attsvm.heads.steps import COLUMNS, LEAST
from compare import close


class Model(torch.nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.embed = torch.nn.Embedding(20, d)
        self.layer = torch.nn.TransformerEncoderLayer(d, 2, 16, dropout=0.2, batch_first=True)
        self.head = torch.nn.Linear(d, 20)

    def forward(self, ids):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.layer(self.embed(ids), mask, is_causal=True))


def make(sharp=True):
    """With attention on few tokens."""
    torch.manual_seed(0)
    model = Model()
    model.layer.self_attn.in_proj_weight.data[:16] *= 12 if sharp else 1
    return model


@pytest.fixture
def probe():
    generator = torch.Generator().manual_seed(9)
    return [torch.randint(20, (16, 12), generator=generator) for _ in range(2)]


def loss_of(model, ids):
    return torch.nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def train(model, steps, monitor=None):
    torch.manual_seed(5)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for step in range(steps):
        if monitor is not None:
            monitor(step)
        loss = loss_of(model, torch.randint(20, (8, 10)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_losses_are_the_same_to_the_bit(probe):
    plain, watched = make(), make()
    monitor = attsvm.torch.Monitor(watched, probe, every=4)
    assert train(plain, 12) == train(watched, 12, monitor)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True))
    assert watched.training and len(monitor.rows) == 3 * 2


def test_rows_say_what_the_head_is(probe):
    model = make()
    monitor = attsvm.torch.Monitor(model, probe, every=5)
    assert monitor(3) is None
    rows = monitor(5)
    assert monitor(5) is None and monitor.rows == rows and [list(row) for row in rows] == [COLUMNS] * 2
    found = attsvm.torch.read(model, probe)
    for row, head in zip(rows, found, strict=True):
        assert (row["step"], row["name"], row["space"], row["tokens"]) == (5, head.label, "residual", 384)
        attention = [np.nan_to_num(head.attention(b)) for b in range(32)]
        top = np.concatenate([prob[1:].max(axis=1) for prob in attention])  # the first query has no choice
        assert row["top"] == pytest.approx(top.mean(), rel=1e-5) and row["hard"] == pytest.approx((top > 0.9).mean())
        effective = np.concatenate([1 / (prob[1:] ** 2).sum(axis=1) for prob in attention])
        assert row["effective"] == pytest.approx(effective.mean(), rel=1e-5)
        assert row["norm"] == pytest.approx(np.linalg.norm(head.W), rel=1e-9)
        assert row["stable_rank"] == pytest.approx((np.linalg.norm(head.W) / np.linalg.norm(head.W, 2)) ** 2)
        assert row["hard"] * 352 >= LEAST and row["status"] == "optimal"
        assert 0 < row["own"] < 1 and 0 < row["null_own"] < 1 and abs(row["cosine"]) <= 1
    scalars = monitor.scalars()
    assert scalars["attsvm/L0H1/cosine"] == rows[1]["cosine"] and "attsvm/L0H1/status" not in scalars


@pytest.mark.parametrize("eager", [False, True])
def test_gradients_in_the_attention_are_those_of_the_keys_weights(probe, eager):
    """With delta = P (G - P.G), dL/dW = sum delta x z^T, and that times Q is what autograd has for K."""
    from attsvm.heads.steps import in_logits
    from attsvm.torch import monitor

    model = make().double().eval()

    def loss(model, ids):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=torch.float64)
        x = model.embed(ids)
        attended = model.layer.self_attn(x, x, x, attn_mask=mask, need_weights=eager)[0]
        return torch.nn.functional.cross_entropy(model.head(attended).flatten(0, 1), ids.flatten())

    found = monitor.in_probabilities(model, probe[:1], loss)
    assert all(weights.grad is None for weights in model.parameters())
    attention = model.layer.self_attn
    heads = attsvm.torch.read(model, probe[:1], forward=lambda ids: loss(model, ids))
    loss(model, probe[0]).backward()
    for head in heads:
        dW = np.zeros(head.W.shape)
        for i, G in enumerate(monitor.of_head(head, found)):
            P, x = head.attention(i), head.keys[head.text.begin[i] :][: head.text.lengths[i]].astype(np.float64)
            dW += x.T @ in_logits(P, G).T @ x
        of_keys = slice(8 + 4 * head.number, 12 + 4 * head.number)
        expected = np.r_[
            attention.in_proj_weight.grad[of_keys].numpy().T, [attention.in_proj_bias.grad[of_keys].numpy()]
        ]
        close(dW @ head.Q, expected, 1e-6)


def test_the_gradient_encloses_the_margin(probe):
    monitor = attsvm.torch.Monitor(make(), probe, loss=loss_of)
    for row in monitor(0):
        assert 0 < row["negative"] < 1 and 0 < row["null_negative"] < 1
        assert 0 <= row["low"] <= row["margin_bound"] and row["margin"] <= row["high"] < np.inf
        assert 0 < row["null_low"] < row["null_high"]
    assert all(math.isnan(row["negative"]) for row in attsvm.torch.Monitor(make(), probe)(0))


def test_a_flat_head_has_no_svm(probe):
    rows = attsvm.torch.Monitor(make(sharp=False), probe)(0)
    assert all(row["status"] == "" and math.isnan(row["cosine"]) and row["hard"] < 0.1 for row in rows)


def test_the_file_goes_on_where_a_run_stopped(probe, tmp_path):
    file = tmp_path / "run" / "heads.csv"
    first = attsvm.torch.Monitor(make(), probe, every=2, file=file)
    first(0), first(2)
    with open(file, "a") as half:
        half.write("4,L0H0,0,0,layer")  # as a run leaves it that is killed
    again = attsvm.torch.Monitor(make(), probe, every=2, file=file)
    assert again(2) is None and len(again(4)) == 2
    rows = attsvm.heads.read_training(file)
    assert [row["step"] for row in rows] == [0, 0, 2, 2, 4, 4]
    for row, other in zip(rows, again.rows, strict=True):
        assert {k: v for k, v in row.items() if v == v} == {k: v for k, v in other.items() if v == v}


def test_a_writer_gets_every_number(probe):
    written = []
    writer = SimpleNamespace(add_scalar=lambda *given: written.append(given))
    monitor = attsvm.torch.Monitor(make(), probe, every=2, writer=writer)
    monitor(2)
    assert written == [(tag, value, 2) for tag, value in monitor.scalars().items()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": 3}, "loss must be a function of the model and a batch, got int"),
        ({"loss": lambda model, ids: model(ids)}, "loss must return one number with a gradient, got tensor"),
        ({"writer": 3}, "writer must have add_scalar"),
        ({"null": "yes"}, "null must be a bool, got str"),
        ({"probe": []}, "probe must hold at least one batch"),
        ({"probe": 3}, "probe must be an iterable of batches, got int"),
    ],
)
def test_arguments_that_do_not_fit(probe, change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        attsvm.torch.Monitor(make(), **{"probe": probe} | change)(0)


def test_its_picture(probe):
    pytest.importorskip("matplotlib")
    monitor = attsvm.torch.Monitor(make(), probe, every=1)
    monitor(0), monitor(1)
    figure = monitor.plot()
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["Weights", "Hard queries", "Direction", "Margin"]
    assert [len(ax.lines) for ax in figure.axes] == [2, 2, 3, 3]  # two heads; one layer's random head
    plt = pytest.importorskip("matplotlib.pyplot")
    assert plt.gcf() is figure  # which plt.savefig writes
    plt.close(figure)


def test_a_real_trainer_calls_it(probe, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    )
    monitor = attsvm.torch.Monitor(model, [{"input_ids": ids} for ids in probe], every=3)
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    data = [{"input_ids": ids, "labels": ids} for ids in torch.cat(probe)]
    transformers.Trainer(model, arguments, train_dataset=data, callbacks=[monitor.for_trainer()]).train()
    assert sorted({row["step"] for row in monitor.rows}) == [0, 3, 6]


@pytest.mark.slow
def test_lightning_calls_it(probe, tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make()

        def training_step(self, ids, index):
            return loss_of(self.model, ids)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Module()
    monitor = attsvm.torch.Monitor(module.model, probe, every=2)
    lightning.Trainer(
        max_steps=4, callbacks=[monitor.for_lightning()], logger=False, accelerator="cpu", enable_checkpointing=False,
        enable_progress_bar=False, default_root_dir=tmp_path,
    ).fit(module, torch.utils.data.DataLoader(torch.cat(probe), batch_size=8))  # fmt: skip
    assert sorted({row["step"] for row in monitor.rows}) == [0, 2, 4]


@pytest.mark.slow
def test_the_first_layer_turns_towards_its_svm():
    """The GPT of the figure "training", 500 steps of SGD: nearer to the SVM of its choices than a random head is."""
    from attsvm.reproduce.figures.training import learn, means

    _, monitor, loss = learn("SGD", seed=0, steps=500, every=500)
    cosine, null = (means(monitor, 0, column)[-1] for column in ("cosine", "null_cosine"))
    assert loss < 1 and cosine > 0.5 and cosine > null + 0.15
    assert means(monitor, 0, "norm")[-1] > 2 * means(monitor, 0, "norm")[0]
