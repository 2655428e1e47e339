"""What heads do in a model whose heads are made by hand, so that every column of the table has a known truth."""

import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import attsvm.torch
import numpy as np
import pytest
import torch
from attsvm.heads.cases import as_cases
from attsvm.heads.directions import directions, name_directions
from attsvm.heads.sequences import Text
from attsvm.torch.faithfulness import HeldOut, without_directions
from attsvm.torch.replacement import _whitened_cut, as_source
from attsvm.torch.replacement import made as make
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn import functional as F

T, M = 8, 8  # tokens, and dimensions of a head; a token is M numbers of content and T of its place
runs_of = sys.modules["attsvm.torch.faithfulness"]  # which the function of that name hides
IDLE, OFFSET, LOW, RANDOM = range(4)
faithfulness = partial(attsvm.torch.faithfulness, progress=False)


class Made(torch.nn.Module):
    """Four heads: one whose values are zero, one that is "offset -1", one of rank M / 4, and one of full rank."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        queries, keys, values = (np.zeros((4, M, M + T)) for _ in range(3))
        queries[OFFSET, :, M:] = 9 * np.eye(T)
        keys[OFFSET, : T - 1, M:] = 9 * np.eye(T)[:-1]
        keys[OFFSET] = np.roll(keys[OFFSET], 1, axis=0)  # query t meets token t - 1, and query 0 none
        for h, rank in ((IDLE, M), (LOW, M // 4), (RANDOM, M)):
            queries[h, :rank, :M], keys[h, :rank, :M] = 3 * rng.standard_normal((2, rank, M))
        values[OFFSET:] = rng.standard_normal((3, M, M + T))
        self.maps = torch.nn.ModuleList(torch.nn.Linear(M + T, 4 * M, bias=False) for _ in range(3))
        with torch.no_grad():
            for linear, weight in zip(self.maps, (queries, keys, values), strict=True):
                linear.weight.copy_(torch.from_numpy(weight).flatten(0, 1))

    def forward(self, x, attention_mask=None):
        q, k, v = (linear(x).unflatten(-1, (4, M)).transpose(1, 2) for linear in self.maps)
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)


def tokens(rng, n):
    content = rng.standard_normal((n, T, M))
    return torch.from_numpy(np.concatenate([content, np.broadcast_to(np.eye(T), (n, T, T))], axis=2)).float()


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(1)
    model = Made()
    found = attsvm.torch.read(model, [{"x": tokens(rng, 60)}])
    held_out = [{"x": tokens(rng, 30)} for _ in range(2)]
    return model, found, held_out, faithfulness(model, found, held_out, [12, 150], 2)


@pytest.mark.parametrize(("small", "threads"), [(10**8, 1), (0, 3)])
def test_a_small_model_runs_on_one_thread(made, monkeypatch, small, threads):
    model, found, held_out, _ = made
    monkeypatch.setattr(sys.modules[HeldOut.__module__], "SMALL", small)
    used = []
    with runs_of.torch_threads(3), runs_of.substitution(model) as running:
        kept = HeldOut(running, held_out, lambda x: used.append(torch.get_num_threads()) or model(x), "auto")
        kept.damage({found[2]: runs_of.as_replacement(found[2], "uniform", None)})
        assert torch.get_num_threads() == 3
    assert used == [3] * len(held_out) + [threads] * len(held_out)


def test_a_head_that_does_nothing_has_no_importance(made):
    table = made[-1]
    assert table.importance("L0H0") == 0
    assert all(np.isnan(table.recovered("L0H0", column)) for column in ("own", "SVM", "rule", "random head"))


@pytest.mark.parametrize("terminal", [False, True], ids=["a file", "a terminal"])
def test_long_work_is_shown_at_a_terminal(made, terminal, monkeypatch, capsys):
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: terminal)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # lines in place of bars
    model, _, held_out, _ = made
    found = attsvm.torch.read(model, held_out)[:1]
    reports = attsvm.heads.analyze_model(found, null=False, nuclear_queries=0, splits=1, n_jobs=1)
    attsvm.torch.damage(model, reports, held_out)
    attsvm.torch.read(model, iter(held_out), progress=False)
    attsvm.torch.faithfulness(model, found, held_out, [5], 1, n_jobs=1)
    begun = {line.partition(":")[0] for line in capsys.readouterr().err.splitlines()}
    assert begun == ({"read", "solve", "damage", "faithfulness"} if terminal else set())


def without(model, held_out, h, change):
    """1 - cosine of the output with something else of this head, of each input."""
    found = []
    for batch in held_out:
        own, values = (x.detach().double() for x in (model(**batch), model.maps[2](batch["x"])))
        other = own.clone()
        other[..., h * M : h * M + M] = change(values[..., h * M : h * M + M])
        found.append(1 - F.cosine_similarity(own, other, dim=-1).mean(1))
    return torch.cat(found).numpy()


def test_damage_is_the_change_of_the_output_without_the_head(made):
    """And importance that of equal attention."""
    model, found, held_out, table = made
    reports = attsvm.heads.analyze_model(found, null=False, nuclear_queries=0, splits=1, n_jobs=1)
    lost = attsvm.torch.damage(model, reports, held_out, progress=False)
    assert isinstance(lost, attsvm.heads.Reports) and lost[IDLE].damage == 0 < lost["L0H1"].damage
    assert table.metric == lost[0].metric == "1 - cosine" and np.isnan(reports[0].damage)
    for h, report in enumerate(lost):
        nothing = without(model, held_out, h, torch.zeros_like)
        assert report.damage == pytest.approx(nothing.mean(), rel=1e-5, abs=1e-9)
        assert f"the output changes by {report.damage:.2g} (1 - cosine)" in report.summary
        equal = without(model, held_out, h, lambda values: values.mean(1, keepdim=True))
        assert_allclose(table.damages[report.head.label, "uniform", 0][0], equal, rtol=1e-4, atol=1e-7)
    for wrong, message in ((held_out[0], "batches must be an iterable"), ([], "batches must hold at least one batch")):
        with pytest.raises((TypeError, ValueError), match=message):
            attsvm.torch.damage(model, reports, wrong)


def test_own_weights_recover_everything(made):
    table = made[-1]
    for row in ("L0H1", "L0H2", "L0H3", "all of these"):
        assert table.recovered(row, "own") == pytest.approx(1, abs=1e-6)


def test_a_positional_rule_is_found_and_is_all_there_is(made):
    table = made[-1]
    assert table.rules["L0H1"] == ("offset -1", 1.0)
    assert table.recovered("L0H1", "rule") == pytest.approx(1, abs=1e-3)
    assert table.recovered("L0H1", "SVM") > 0.95 and table.recovered("L0H1", "logistic") > 0.5
    assert_array_equal(table.damages["L0H1", "SVM", 150], table.damages["L0H1", "SVM of the rule", 150])
    assert table.recovered("L0H1", "shuffled") < 0.3  # its singular values are all the same
    assert table.recovered("L0H1", "cut") < 0.6


def test_the_first_token_is_a_rule():
    X = np.random.default_rng(0).standard_normal((20, 5, 3))
    X[:, :, 0] = 9.0 * (np.arange(5) == 0)
    (head,) = attsvm.heads.from_arrays(X, np.zeros((3, 3)), [9.0, 0.0, 0.0], np.eye(3), None)
    source = as_source(head)
    assert (source.rule, source.follows) == ("first token", 1.0)


@pytest.mark.parametrize("row", ["L0H2", "L0H3"])
def test_choices_of_content_are_no_rule(made, row):
    table = made[-1]
    assert table.rules[row][1] < 0.5
    assert table.recovered(row, "rule") < 0.2 and table.recovered(row, "SVM of the rule") < 0.2
    for column in ("SVM", "logistic", "distilled"):
        assert table.recovered(row, column) > 0.5
    assert table.recovered(row, "distilled") > table.recovered(row, "SVM")  # it knows more of each query
    assert table.recovered(row, "random head") < 0.2


def test_a_cut_to_the_rank_there_is_loses_nothing(made):
    table = made[-1]
    for column in ("cut", "whitened cut"):
        assert table.recovered("L0H2", column) == pytest.approx(1, abs=1e-4)
        assert table.recovered("L0H3", column) < 0.9
    assert table.recovered("all of these", "whitened cut") >= table.recovered("all of these", "cut") - 0.05


def test_all_at_once_and_fewer_choices(made):
    _, _, _, table = made
    assert table.rows == ["L0H0", "L0H1", "L0H2", "L0H3", "all of these"] and table.queries == [12, 150]
    assert table.importance("all of these") > max(table.importance(row) for row in table.labels)
    assert table.recovered("all of these", "SVM", 12) < table.recovered("all of these", "SVM", 150) - 0.1
    draws, inputs = table.spread("all of these", "SVM")
    damage = table.damages["all of these", "SVM", 150]
    assert damage.shape == (2, 60) and draws > 0 and 0 < inputs < 0.1
    ratios = 1 - damage.mean(axis=1) / table.importance("all of these")
    assert draws == pytest.approx(ratios.std(ddof=1))
    assert table.recovered("all of these", "SVM") == pytest.approx(ratios.mean())


def test_padding_is_not_counted(made):
    model, found, _, _ = made
    x = tokens(np.random.default_rng(2), 6)
    short = {"x": x[:, :5], "attention_mask": torch.ones(6, 5)}
    padded = {"x": x, "attention_mask": (torch.arange(T) < 5).expand(6, T).float()}
    one, other = (faithfulness(model, found[1:2], [b], [5], 1) for b in (short, padded))
    for key in one.damages:
        assert_allclose(one.damages[key], other.damages[key], atol=1e-5)


def test_logits_are_compared_as_distributions(made):
    model, found, held_out, _ = made

    def forward(x):
        return SimpleNamespace(logits=model(x))

    table = faithfulness(model, found[1:2], held_out[:1], [20], 1, forward=forward)
    with torch.no_grad():
        own = torch.log_softmax(model(**held_out[0]).double(), -1)
        with attsvm.torch.substitute(model, {found[1]: "uniform"}):
            other = torch.log_softmax(model(**held_out[0]).double(), -1)
    expected = F.kl_div(other, own, log_target=True, reduction="none").sum(-1).mean(1)
    assert table.metric == "KL"
    assert_allclose(table.damages["L0H1", "uniform", 0][0], expected, rtol=1e-4)


def test_what_a_direction_does(made):
    """Of the low-rank head: two directions; without the larger one it loses more than without a random one."""
    model, found, held_out, _ = made
    head = found[LOW]
    table = faithfulness(model, [head], held_out, [20], 1, directions=True)
    left, sizes, right = np.linalg.svd(head.W)
    assert [d.number for d in table.directions] == [0, 1]
    assert [d.value for d in table.directions] == pytest.approx(sizes[:2], rel=1e-6)
    own = [model(**batch).detach() for batch in held_out]
    with attsvm.torch.substitute(model, {head: head.W - sizes[1] * np.outer(left[:, 1], right[1])}):
        off = [1 - F.cosine_similarity(a, model(**batch), dim=-1) for a, batch in zip(own, held_out, strict=True)]
    assert table.directions[1].damage == pytest.approx(float(torch.cat(off).mean()), rel=1e-3)
    assert table.directions[0].damage > table.directions[0].random > 0
    assert table._repr_html_().count("<thead>") == 2 and table.directions[0].name in repr(table)


def test_random_directions_lie_in_the_spans_of_W(made):
    head, seen = made[1][LOW], []
    left, _, right = directions(head)

    def damage(values):
        seen.extend(form.K @ form.Q.T for form in values.values())
        return np.zeros(1)

    assert len(list(without_directions(as_source(head), damage, 0, None))) == 2 and len(seen) == 8
    for W in seen:
        assert_allclose(left @ (left.T @ W @ right) @ right.T, W, atol=1e-9 * np.abs(head.W).max())


def test_a_whitened_cut_is_the_best_of_its_rank():
    """No small change of its factors brings the logits nearer; what all tokens share moves none."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 6, 5)) + [6.0, 0, 0, 0, 0]
    (head,) = attsvm.heads.from_arrays(X, rng.standard_normal((4, 5)), None, rng.standard_normal((4, 5)), None)
    keys = head.text.keys.reshape(30, 6, -1)
    keys = np.concatenate(keys - keys.mean(1, keepdims=True))

    def off(left, right):
        return ((keys @ (head.W - np.outer(left, right)) @ head.queries.T) ** 2).sum()

    left, sizes, right = np.linalg.svd(_whitened_cut(head, 1))
    left, right = sizes[0] * left[:, 0], right[0]
    for a, b in 1e-4 * rng.standard_normal((20, 2, len(left))):
        assert off(left, right) <= min(off(left + a, right), off(left, right + b), off(left, right - b))


def test_directions_of_the_svm_are_named_beside(made):
    model, found, held_out, _ = made
    old = found[RANDOM].text
    words = [[f"word {(i * t) % 5}" for t in range(T)] for i in range(60)]
    head = replace(found[RANDOM], text=Text(old.keys, old.lengths, words))
    table = faithfulness(model, [head], held_out[:1], [20], 1, directions=True)
    hard = attsvm.heads.hard_queries(head)
    cases = as_cases(head, np.random.default_rng([0, 0, RANDOM, 0]).permutation(hard)[:20])
    named = name_directions(head, hard, attsvm.solve_svm(cases.data, cases.selected).W, 4)
    assert [d.svm for d in table.directions] == [str(d) for d in named] and "word 1" in table.directions[0].svm
    assert [d.name for d in table.directions] == [str(d) for d in name_directions(head, hard, most=4)]


def test_table_picture_and_frame(made, ax):
    pytest.importorskip("pandas")
    table = made[-1]
    html = table._repr_html_()
    assert html.count("<tr><td>") == 5 and "offset -1 (100 %)" in html and "4 heads were looked at" in html
    frame = table.to_dataframe().set_index(["row", "column", "queries"])
    assert frame.recovered["all of these", "SVM", 150] == table.recovered("all of these", "SVM")
    lines = table.plot(ax).lines
    assert any(np.allclose(line.get_ydata(), table.recovered("all of these", "shuffled")) for line in lines)


class Deep(torch.nn.Module):
    """Two layers of them: the second reads the first one's "offset -1" head."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Made(), Made()

    def forward(self, x):
        return self.second(torch.cat([self.first(x)[..., OFFSET * M : OFFSET * M + M], x[..., M:]], -1))


@pytest.fixture(scope="module")
def deep():
    rng = np.random.default_rng(2)
    model = Deep()
    return model, attsvm.torch.read(model, [{"x": tokens(rng, 20)}]), [{"x": tokens(rng, 20)}]


def same(a, b, renamed=None):
    """Damages of all rows of b, or of one under another name."""
    rows = renamed or {row: row for row in b.rows}
    expected = {(rows[row], *rest): damage for (row, *rest), damage in b.damages.items() if row in rows}
    assert expected.keys() <= a.damages.keys()
    for key, damage in expected.items():
        assert_allclose(a.damages[key], damage, rtol=1e-4, atol=1e-7)


def test_layers_first_to_last(deep, ax):
    model, found, held_out = deep
    found = [found[k] for k in (OFFSET, LOW, 4 + OFFSET)]
    table = faithfulness(model, found[::-1], held_out, [6, 20], 1, rows="layers")
    last = "all of these"
    assert table.rows == ["layers to 0", last] and table.layers == {"layers to 0": 0, last: 1}
    assert table.labels[0].startswith("L0") and table.labels[-1].startswith("L1")
    same(table, faithfulness(model, found, held_out, [6, 20], 1), {last: last})
    same(table, faithfulness(model, found[:2], held_out, [20], 1), {last: "layers to 0"})
    # All that the second layer reads of the first is its "offset -1" head.
    assert table.recovered("layers to 0", "rule") > 0.99 and table.recovered("layers to 0", "random head") < 0.3
    assert table.recovered(last, "rule") > 0.99 and table.recovered(last, "SVM", 6) < 0.8
    html = table._repr_html_()
    assert html.count("<tr><td>") == 2 and "layers to 0" in html and "3 heads were looked at" in html
    assert html.count("<th>") == 11 and "best rule" not in html  # nor hard queries: those are of one head
    line = table.plot(ax).lines[0]
    assert line.get_ydata().tolist() == [table.recovered(row, "SVM") for row in table.rows]


def test_a_file_keeps_what_is_done(deep, tmp_path, monkeypatch):
    model, found, held_out = deep
    found, path = [found[1], found[6]], tmp_path / "runs.log"

    def table(found=found, held_out=held_out, **changed):
        options = dict(queries=[6, 20], seeds=2, directions=True, n_jobs=1, file=path)
        return faithfulness(model, found, held_out, **options | changed)

    damage, interrupted = HeldOut.damage, 20
    done = {make: 0, damage: 0}

    def counting(function):
        def counted(*args):
            done[function] += 1
            if done[damage] == interrupted:
                raise KeyboardInterrupt
            return function(*args)

        return counted

    expected = table(file=None)
    runs = sum(len(damages) for damages in expected.damages.values()) + (4 + 2) * (1 + 3)
    monkeypatch.setattr(HeldOut, "damage", counting(damage))
    with pytest.raises(KeyboardInterrupt):
        table()
    path.write_bytes(path.read_bytes() + b"\x93NUMPY\x01")  # and a record cut short
    monkeypatch.setattr(runs_of, "made", counting(make))
    again = table(n_jobs=2)
    same(again, expected)
    assert [d.name for d in again.directions] == [d.name for d in expected.directions]
    finished = list(done.values())
    assert finished[0] <= 1 and finished[1] == runs + 1  # the first head's were in the file; and the one interrupted
    table(rows="layers")
    assert list(done.values()) == [finished[0], runs + 1 + 1 + 4 + 4 * 2 + 2 * 2]  # of layer 0
    for change in ({"seed": 1}, {"queries": [6]}):
        with pytest.raises(ValueError, match=r"runs.log holds L0H1 of another model, text, version or options"):
            table(**change)
    with pytest.raises(ValueError, match=r"runs.log holds runs of another model or other batches"):
        table(held_out=[{"x": held_out[0]["x"] + 0.1}])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batches": []}, "batches must hold at least one batch"),
        ({"batches": {}}, r"batches must be an iterable of what the model takes, got dict: \[batch\]\?"),
        ({"found": []}, "found must hold at least one head"),
        ({"queries": []}, "queries must hold at least one number"),
        ({"queries": [0]}, "queries must be at least 1"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"directions": "yes"}, "directions must be a bool, got str"),
        ({"rows": "tokens"}, "rows must be one of 'heads', 'layers'"),
        ({"metric": "L2"}, "metric must be one of 'auto', 'KL', '1 - cosine'"),
    ],
)
def test_arguments_that_do_not_fit(made, change, message):
    model, found, held_out, _ = made
    with pytest.raises((ValueError, TypeError), match=message):
        faithfulness(**{"model": model, "found": found, "batches": held_out} | change)
