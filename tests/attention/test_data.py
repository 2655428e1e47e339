"""The data model: what users give, the flat arrays behind it, and results back in the shape of the data."""

import copy
import operator
import pickle

import attsvm
import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from attsvm.common import storage
from builders import BUILDERS, build_case
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal


def rows(shaped):
    """Entry-shaped results as one row per query, nothing cut off."""
    return [row for part in shaped for row in np.atleast_2d(part)]


def tokens_of(lengths, d, rng, kind):
    """Ragged tokens as a list of arrays, and as what is given: a tuple, nested lists, or (when they fit) one array."""
    X = [rng.standard_normal((T, d)) for T in lengths]
    if kind is np.array and len(set(lengths)) > 1:
        return X, X
    return X, kind(X)


ragged = st.lists(st.integers(1, 6), min_size=1, max_size=5)
kinds = st.sampled_from([list, tuple, lambda X: [x.tolist() for x in X], np.array])
sizes = st.integers(1, 4)
seeds = st.integers(0, 2**32 - 1)


# ------------------------------------------------------------------------------------ constructors


@given(ragged, sizes, sizes, st.sampled_from(["one", "as many", "uneven"]), kinds, seeds)
def test_cross_attention_lays_sequences_below_each_other(lengths, d, dz, queries, kind, seed):
    rng = np.random.default_rng(seed)
    (X, given_X), n = tokens_of(lengths, d, rng, kind), len(lengths)
    counts = {"one": [1] * n, "as many": [3] * n, "uneven": rng.integers(1, 5, n)}[queries]
    Z = [rng.standard_normal((S, dz)) for S in counts]
    given_Z = {"one": np.concatenate, "as many": np.array, "uneven": list}[queries](Z)
    data, W = attsvm.cross_attention(given_X, given_Z), rng.standard_normal((d, dz))
    assert_array_equal(data.keys, np.concatenate(X))
    assert_array_equal(data.queries, np.concatenate(Z))
    begin = np.cumsum([0, *lengths])
    assert_array_equal(data.start, np.repeat(begin[:-1], counts))
    assert_array_equal(data.stop, np.repeat(begin[1:], counts))
    assert data.values is data.keys
    assert (len(data), data.dk, data.dz) == (sum(counts), d, dz)
    for logit, x, z in zip(data.logits(W), X, given_Z, strict=True):
        assert_allclose(logit, z @ W.T @ x.T, rtol=1e-12, atol=1e-14)  # of the same shape


@pytest.mark.parametrize("which", ["all", "from the start", "from the end"])
@given(ragged, sizes, kinds, seeds)
def test_self_attention_takes_queries_from_the_tokens(which, lengths, d, kind, seed):
    rng = np.random.default_rng(seed)
    (X, given_X), index = tokens_of(lengths, d, rng, kind), int(rng.integers(min(lengths)))
    query = {"all": None, "from the start": index, "from the end": -1 - index}[which]
    data, W = attsvm.self_attention(given_X, query), rng.standard_normal((d, d))
    chosen = X if query is None else [x[query] for x in X]
    assert_array_equal(data.queries, np.vstack(chosen))
    for logit, x, z in zip(data.logits(W), X, chosen, strict=True):
        assert_allclose(logit, z @ W.T @ x.T, rtol=1e-12, atol=1e-14)


@given(ragged, sizes, kinds, st.sampled_from([None, 1, 2, 4]), seeds)
def test_causal_attention_is_a_mask(lengths, d, kind, window, seed):
    rng = np.random.default_rng(seed)
    (X, given_X), W = tokens_of(lengths, d, rng, kind), rng.standard_normal((d, d))
    data = attsvm.causal_attention(given_X, window=window)
    assert_array_equal(data.queries, np.concatenate(X))
    masks = [np.tri(T, dtype=bool) & ~np.tri(T, k=-(window or T), dtype=bool) for T in lengths]
    for x, seen, logit, p in zip(X, masks, data.logits(W), data.probabilities(W), strict=True):
        assert_allclose(logit, np.where(seen, x @ W.T @ x.T, -np.inf), rtol=1e-12, atol=1e-14)
        assert_array_equal(p > 0, seen)
    first = np.concatenate([seen.argmax(axis=1) for seen in masks])
    assert_array_equal(data.start - np.repeat(np.cumsum(lengths) - lengths, lengths), first)
    if not all(seen.all() for seen in masks):
        with pytest.raises(ValueError, match="must not select a token (after its query|outside its query's window)"):
            attsvm.solve_svm(data, [seen | True for seen in masks])


@given(ragged, sizes, sizes, kinds, seeds)
def test_prompt_attention_multiplies_the_key_once(lengths, d, dk, kind, seed):
    rng = np.random.default_rng(seed)
    X, given_X = tokens_of(lengths, d, rng, kind)
    key, p = rng.standard_normal((dk, d)), rng.standard_normal((dk, 1))
    data = attsvm.prompt_attention(given_X, key)
    assert (data.dk, data.dz, data.values.shape[1]) == (dk, 1, d)
    for i, x in enumerate(X):
        assert_allclose(data.logits(p)[i], (x @ key.T @ p)[:, 0], rtol=1e-12, atol=1e-13)
    assert_array_equal(attsvm.prompt_attention(given_X).values, np.concatenate(X))


@given(ragged, st.sampled_from(["one", "several", "all", "causal"]), seeds)
def test_shapes_round_trip_through_the_flat_arrays(lengths, queries, seed):
    rng, n = np.random.default_rng(seed), len(lengths)
    X = [rng.standard_normal((T, 2)) for T in lengths]
    data = {
        "one": lambda: attsvm.cross_attention(X, np.ones((n, 2))),
        "several": lambda: attsvm.cross_attention(X, np.ones((n, 3, 2))),
        "all": lambda: attsvm.self_attention(X, None),
        "causal": lambda: attsvm.causal_attention(X),
    }[queries]()
    layout, entries, numbers = data._layout, np.arange(1.0, data.indptr[-1] + 1), np.arange(len(data))
    shaped, per_query = layout.shape_entries(entries, 0.0), layout.shape_queries(numbers)
    for flat in (layout.flatten_entries("a", shaped), np.concatenate(reference.per_entry(data, shaped))):
        assert_array_equal(flat, entries)
    for flat in (layout.flatten_queries("a", per_query), reference.per_query(data, per_query)):
        assert_array_equal(flat, numbers)
    assert_array_equal(layout.flatten_queries("v", layout.shape_queries(data.queries), 2), data.queries)


# ------------------------------------------------------------------------------------ results


def test_results_are_the_twins(case):
    data, W = case.data, case.rng.standard_normal((case.data.dk, case.data.dz))
    logits, windows = reference.logits(data, W), zip(reference.windows(data), data.queries, strict=True)
    selected = [int(row.argmax()) for row in logits]
    margins = [reference.dots(X[t] - X, W @ z) for t, (X, z) in zip(selected, windows, strict=True)]
    for row, t in zip(margins, selected, strict=True):
        row[t] = np.inf
    for found, expected, blank, atol in (
        (data.logits(W), logits, -np.inf, 1e-13),
        (data.probabilities(W), reference.probabilities(data, W), 0.0, 0.0),
        (data.margins(W, data.select(W)), margins, np.inf, 1e-13),
    ):
        shaped = data._layout.shape_entries(np.concatenate(expected), blank)
        for row, twin in zip(rows(found), rows(shaped), strict=True):
            assert_allclose(row, twin, rtol=1e-12, atol=atol)
    for hard, values in ((False, reference.attended(data, W)), (True, data.values[data.start + selected])):
        found = np.concatenate([np.reshape(part, (-1, data.values.shape[1])) for part in data.attended(W, hard=hard)])
        assert_allclose(found, values, rtol=1e-12, atol=1e-13)
    assert_array_equal(reference.per_query(data, data.select(W)), selected)


def test_reprs_name_the_kind_and_the_sizes(case_name):
    case = build_case(case_name)
    text = repr(case.data)
    assert text.startswith(f"<attsvm {case_name.split('_')[0]}_attention: {len(case.data)} queries")
    assert ("float32" in text) == (case_name == "cross_float32")
    assert "LinearHead" in repr(attsvm.Problem(case.data, case.y, attsvm.LinearHead(case.v)))


# ------------------------------------------------------------------------------------ inputs


def made(name, dtype, times=1):
    """Data of a kind, with so many times its tokens, and the arrays that they were given."""
    rng, given = np.random.default_rng(0), []

    def draw(*shape, dtype=float):
        given.append(rng.standard_normal(shape).astype(dtype))
        return given[-1]

    return BUILDERS[name](lambda *shape: draw(*shape[:-2], times * shape[-2], shape[-1], dtype=dtype), draw), given


class Foreign:
    """An array of another library, which shares its memory."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_data_are_what_they_were_made_of(case_name, dtype, tmp_path):
    """Whoever writes into X, Z or the values afterwards changes nothing; what an answer says stays as it was saved."""
    data, given_arrays = made(case_name, dtype)
    before = copy.deepcopy((data.keys, data.queries, data.values))
    sol = attsvm.feasible(data, data.select(np.ones((data.dk, data.dz))))
    sol.save(tmp_path / "answer.npz")
    for array in given_arrays:
        array[:] = np.nan
    assert storage.same((data.keys, data.queries, data.values), before)
    assert not any(array.flags.writeable for array in (data.keys, data.queries, data.values))
    assert attsvm.load(tmp_path / "answer.npz") == sol


def test_arrays_of_other_libraries_are_copied(rng):
    X = rng.standard_normal((3, 5, 4))
    for other in (Foreign(X), memoryview(X), X.view(type("Sub", (np.ndarray,), {}))):
        assert not np.shares_memory(attsvm.self_attention(other).keys, X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tokens_begin_a_cache_line(case_name, dtype):
    together = [made(case_name, dtype, 60)[0] for _ in range(5)]
    assert all(data.keys.ctypes.data % 64 == 0 for data in together)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_view_where_it_is_asked_for(dtype, rng):
    """And of a memory map always."""
    X, V = rng.standard_normal((3, 5, 4)).astype(dtype), rng.standard_normal((3, 5, 2))
    data = attsvm.cross_attention(X, X[:, 0].astype(float), V, copy=False)
    assert np.shares_memory(data.keys, X) and np.shares_memory(data.values, V)
    assert not data.keys.flags.writeable and X.flags.writeable
    for make in (attsvm.self_attention, attsvm.causal_attention, attsvm.prompt_attention):
        for seen in (make(X, copy=False), make(X.view(np.memmap))):
            assert np.shares_memory(seen.keys, X)


VARIANTS = {
    "list": lambda a: a.tolist(),
    "list of arrays": list,
    "tuple": lambda a: tuple(a.tolist()),
    "read_only": lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
    "fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[::-1].copy()[::-1],
    "big_endian": lambda a: a.astype(">f8"),
    "long_double": lambda a: a.astype(np.longdouble),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), dtype=np.uint8)[1:].view(a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_any_array_like_gives_the_same_result(variant, sphere):
    s = sphere(n=3, T=4, d=5)
    W = np.random.default_rng(1).standard_normal((5, 5))
    data = attsvm.cross_attention(variant(s.X), variant(s.Z), variant(s.X))
    problem = attsvm.Problem(data, variant(s.y), attsvm.LinearHead(variant(s.v)))
    loss, dW = problem.loss_and_grad(variant(W))
    expected_loss, expected = s.problem.loss_and_grad(W)
    assert loss == expected_loss
    assert_array_equal(dW, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_plain_arrays_take_a_short_road_to_the_same_data(case_name, dtype, monkeypatch):
    short, _ = made(case_name, dtype)
    monkeypatch.setattr(attsvm._core, "plain_windows", lambda *arguments: None)
    long, _ = made(case_name, dtype)
    assert storage.same(short, long) and repr(short) == repr(long)
    W = np.random.default_rng(0).standard_normal((short.dk, short.dz))
    for data in (short, long):
        assert not any(getattr(data, kept).flags.writeable for kept in ("keys", "queries", "start", "stop", "indptr"))
    of = operator.attrgetter("start", "stop", "indptr", "_powers", "_rows", "_choosing")
    assert storage.same((*of(short), short.logits(W)), (*of(long), long.logits(W)))


def test_the_short_road_is_for_plain_arrays_alone(sphere):
    X, Z = sphere(n=3, T=4, d=5).X, sphere(n=3, T=4, d=5).Z
    plain = attsvm._core.plain_windows
    assert plain(X, Z, False) and plain(X.astype(np.float32), Z[:, None], False) and plain(X, X, True)
    for value in (X.astype(int), X.astype(np.float16), X.view(np.memmap), X.tolist(), None, 1.0):
        assert plain(value, Z, False) is plain(X, value, False) is None
    assert plain(X, X.copy(), True) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_largest_number_says_what_is_finite(dtype, rng):
    """Every length up to a few vectors, so that the loop's remainder is among them."""
    largest = attsvm._core.largest
    for n in range(1, 70):
        a = rng.standard_normal(n).astype(dtype) * dtype(10.0) ** rng.integers(-30, 30)
        assert largest(a) == np.abs(a).max()
        for value in (np.nan, -np.nan, np.inf, -np.inf):
            spoiled = np.where(np.arange(n) == rng.integers(n), dtype(value), a)
            assert not np.isfinite(largest(spoiled))
    assert largest(np.zeros(0)) == 0 == largest(-np.zeros(3))
    assert largest(np.float64(1)) is None is largest(np.ones(4)[::2])


def test_pickled_data_give_the_same_results(case):
    again, W = pickle.loads(pickle.dumps(case.data)), np.ones((case.data.dk, case.data.dz))
    assert storage.same(again, case.data) and repr(again) == repr(case.data)
    assert storage.same(again.logits(W), case.data.logits(W))


# ------------------------------------------------------------------------------------ sample, theory


def test_the_sample_lies_on_the_unit_sphere():
    X, Z, y, v = attsvm.sample.unit_sphere(50, 4, 7, rng=3)
    for vectors in (X, Z, v):
        assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-15)
    assert set(y) == {-1.0, 1.0}
    assert_array_equal(attsvm.sample.unit_sphere(50, 4, 7, rng=np.random.default_rng(3))[0], X)
    assert not np.array_equal(attsvm.sample.unit_sphere(50, 4, 7, rng=4)[0], X)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_correlation_does_not_depend_on_scale(scale, rng):
    A, B = rng.standard_normal((2, 3, 4))
    cosine = (A * B).sum() / np.sqrt((A**2).sum() * (B**2).sum())
    assert attsvm.correlation(scale * A, B) == pytest.approx(cosine, rel=1e-13)
    assert attsvm.correlation(scale * A, scale * A) == pytest.approx(1.0, rel=1e-15 * 4)
    assert np.isnan(attsvm.correlation(0 * A, B))


def test_windows_cannot_be_moved_after_they_were_checked(case):
    """What C trusts is read-only, and C keeps a copy of its own for those who insist."""
    data, W = case.data, np.ones((case.data.dk, case.data.dz))
    before = data.logits(W)
    for index in (data.start, data.stop, data.indptr):
        with pytest.raises(ValueError, match="read-only"):
            index[:] = 10**9
    for index in (data.start, data.stop):
        index.flags.writeable = True
        index += 10**9
        index.flags.writeable = False
    assert storage.same(data.logits(W), before)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_copy_of_the_selected_token_has_the_margin_zero(dtype, rng):
    X, Z = rng.standard_normal((5, 7, 20)).astype(dtype), rng.standard_normal((5, 3))
    X[:, 4] = X[:, 2]
    margins = attsvm.cross_attention(X, Z).margins(rng.standard_normal((20, 3)), [2, 4, 2, 4, 2])
    assert (margins[range(5), [4, 2, 4, 2, 4]] == 0).all()


@pytest.mark.parametrize("ragged", [False, True])
def test_sink_is_a_zero_token(ragged):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((T, 3)) for T in ((4, 2) if ragged else (3, 3))]
    V = [rng.standard_normal((len(x), 5)) for x in X]
    Z, W = rng.standard_normal((2, 4)), rng.standard_normal((3, 4))
    data = attsvm.cross_attention(X, Z, V, sink=True)
    for i, logits in enumerate(data.logits(W)):
        raw = X[i] @ W @ Z[i]
        assert_allclose(logits, [*raw, 0.0])
        assert_allclose(data.attended(W)[i], np.exp(raw) @ V[i] / (1 + np.exp(raw).sum()))
