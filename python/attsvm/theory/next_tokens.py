"""Next-token prediction, by attention (token-priority graphs and their components) and by a linear decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..attention.data import Data
from ..attention.kinds import cross_attention
from ..attention.layout import Layout
from ..common.check import as_count, as_floats, as_numbers_of, as_parts, is_ragged
from ..common.result import Lines, Result
from ..training.output_head import LinearHead, LogarithmHead
from ..training.problem import Problem

SHOWN = 8  # largest number of components that are printed


@dataclass(repr=False, eq=False)
class NextToken(Result):
    """Next-token prediction as a problem of attention, with the graphs that determine the direction of its weights.

    Attributes
    ----------
    data : Data
        The last token of a sequence queries all of its tokens; the value of a token is 1 where it is the label, so
        ``data.attended(W)`` is the probability of the label.
    problem : Problem
        ``-log`` of the label's probability, summed over its copies; convex in W.
    selected : (n, T) bool array, or a list of (T_i,)
        Whether the token at that position is in the component of the sequence's label.
    graphs : dict
        For each last token the edges ``y -> t`` of its token-priority graph, (E, 2) integers.  There is an edge if a
        sequence that ends in this token has the label y and another token t.
    components : dict
        For each last token the strongly connected component of each of the K tokens, (K,) integers: the least token of
        the component.  A token that is not in the graph is a component of its own.
    acyclic : bool
        Whether no graph has a cycle, so that every component is a single token.
    """

    data: Data
    selected: Any
    graphs: dict[int, np.ndarray]
    components: dict[int, np.ndarray]
    acyclic: bool

    @cached_property
    def problem(self) -> Problem:
        return Problem(self.data, None, LinearHead([1.0]), loss="log")

    def _title(self) -> str:
        edges = sum(map(len, self.graphs.values()))
        return f"Next-token prediction of {len(self.data)} sequences, {len(self.graphs)} last tokens, {edges} edges"

    def _lines(self) -> Lines:
        cycles = [
            f"  after {k}: {', '.join(map(str, np.flatnonzero(component == least)))}"
            for k, component in self.components.items()
            for least in np.flatnonzero(np.bincount(component) > 1)
        ]
        first = "acyclic: every component is a single token" if self.acyclic else "components, never ranked within:"
        more = [f"  ... {len(cycles)} in all"] * (len(cycles) > SHOWN)
        return [("", line) for line in (first, *cycles[:SHOWN], *more)]

    def columns(self) -> dict[str, Any]:
        """One row per edge."""
        tables = [
            (np.full(len(graph), k), *graph.T, np.equal(*self.components[k][graph].T))
            for k, graph in self.graphs.items()
        ]
        columns = map(np.concatenate, zip(*tables, strict=True))
        return dict(zip(("after", "label", "token", "one_component"), columns, strict=True))


def next_token(sequences: ArrayLike, labels: ArrayLike, embeddings: ArrayLike) -> NextToken:
    """Turns sequences and their next tokens into attention data, a problem, a selection and token-priority graphs.

    The last token k of a sequence queries all of its tokens, ``p_t ~ exp(e_t^T W e_k)``, and predicts the label y with
    the probability that its copies have together.  The token-priority graph of k has an edge from y to every other
    token of a sequence that ends in k and has the label y.  Within a strongly connected component no W ranks every
    label above the other tokens, and training gives the tokens finite proportions.  All other pairs are ranked, and W
    diverges towards

        ``min ||W||  s.t.  (e_y - e_t)^T W e_k = 0``  where y and t are in one component, ``>= 1``  elsewhere,

    for the edges ``y -> t``, if some W meets this (embeddings may be dependent, as when last tokens share one); along
    paths of edges the same then follows.  It is ``solve_svm(found.data, found.selected)``.

    Parameters
    ----------
    sequences : (n, T) integer array_like, or list of n (T_i,)
        Token numbers, 0 .. K - 1.
    labels : (n,) integer array_like
        The next token of each sequence, one of its tokens.
    embeddings : (K, d) array_like
        One row per token.

    Returns
    -------
    NextToken

    Raises
    ------
    ValueError, TypeError
        If token numbers lie outside 0 .. K - 1, or a sequence does not hold its label.  The message names the argument.

    Notes
    -----
    Source: "Mechanics of Next Token Prediction with Self-Attention" (Li, Huang, Ildiz, Rawat, Oymak, 2024).

    Examples
    --------
    >>> import attsvm

    After token 3, 0 is preferred to 1 once and 1 to 0 once, so both are alike; each is preferred to 2:

    >>> found = attsvm.theory.next_token([[0, 1, 3], [1, 0, 2, 3], [0, 2, 1, 3]], [0, 1, 0], np.eye(4))
    >>> found.components[3]
    array([0, 0, 2, 3])
    >>> print(attsvm.solve_svm(found.data, found.selected).W[:, 3].round(3))
    [ 0.5  0.5 -0.5 -0.5]
    """
    embeddings = as_floats("embeddings", embeddings, "K, d")
    K = len(embeddings)
    tokens, lengths = _read_sequences(sequences, K)
    n, first = len(lengths), np.cumsum(lengths) - lengths
    labels = as_numbers_of("labels", labels, "token", K, "n")
    if len(labels) != n:
        raise ValueError(f"labels must have shape (n,) = ({n},), got {labels.shape}")
    label = np.repeat(labels, lengths)
    there = np.logical_or.reduceat(tokens == label, first)
    if not there.all():
        i = there.argmin()
        raise ValueError(f"labels must occur in their sequence, got {labels[i]} for sequence {i}, which has none")
    last = tokens[first + lengths - 1]
    ends = np.repeat(last, lengths)
    known, entries = np.unique(ends, return_counts=True)
    kept, graphs, components = np.empty(len(tokens), dtype=bool), {}, {}
    for k, of in zip(known.tolist(), np.split(np.argsort(ends, kind="stable"), np.cumsum(entries)), strict=False):
        others = of[tokens[of] != label[of]]
        graphs[k] = np.unique(np.stack([label[others], tokens[others]], axis=1), axis=0)
        components[k] = strong_components(graphs[k], K)
        kept[of] = components[k][tokens[of]] == components[k][label[of]]
    values = (tokens == label).astype(np.float64)[:, None]
    data = cross_attention(np.split(embeddings[tokens], first[1:]), embeddings[last], np.split(values, first[1:]))
    acyclic = all((component == np.arange(K)).all() for component in components.values())
    return NextToken(data, data._layout.shape_entries(kept), graphs, components, acyclic)


class Identifiability(NamedTuple):
    """Whether prompts determine a Markov chain of positive probabilities, with the components that decide it.

    Unpacks into its two fields, and is true if the chain is determined.

    Attributes
    ----------
    identifiable : bool
    components : (K, K) integer array
        Row k: the tokens whose order after k the prompts determine share a number, the least of them.
    """

    identifiable: bool
    components: np.ndarray

    def __bool__(self) -> bool:
        return self.identifiable


def identifiable(sequences: ArrayLike, K: int) -> Identifiability:
    """Whether the next tokens of given prompts determine a Markov chain whose transition probabilities are positive.

    These are ``P_kj`` for all tokens k and j.  Where some are zero, chains may differ and give the same next tokens.

    The next token of a prompt that ends in k is j with probability ``m_j P_kj / sum_l m_l P_kl``, where m_j is the
    count of j in the prompt.  A prompt that ends in k and holds j and l therefore fixes the ratio ``P_kj / P_kl``.  All
    of row k is determined if the graph of tokens that occur together in prompts ending in k is connected.  Each of
    these prompts holds k, so this is the case if every token occurs in one of them.

    Parameters
    ----------
    sequences : (n, T) integer array_like, or list of n (T_i,)
        Prompts, of tokens 0 .. K - 1.
    K : int
        Tokens of the vocabulary.

    Returns
    -------
    Identifiability
        ``identifiable, components = attsvm.theory.identifiable(sequences, K)`` takes it apart.

    Notes
    -----
    Source: "From Self-Attention to Markov Models" (Ildiz, Huang, Li, Rawat, Oymak, 2024).

    Examples
    --------
    >>> bool(attsvm.theory.identifiable([[0, 1], [1, 0]], 2)), bool(attsvm.theory.identifiable([[0, 1]], 2))
    (True, False)
    """
    K = as_count("K", K, 1)
    tokens, lengths = _read_sequences(sequences, K)
    met = np.zeros((K, K), dtype=bool)
    met[np.repeat(tokens[np.cumsum(lengths) - 1], lengths), tokens] = True
    return Identifiability(bool(met.all()), np.where(met, met.argmax(axis=1)[:, None], np.arange(K)))


def _read_sequences(sequences: Any, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the token numbers of all sequences, concatenated; and the length of each sequence."""
    ragged = is_ragged(sequences)
    letters = "n" if ragged else "n, T"
    parts = as_parts("sequences", sequences, ragged, lambda name, part: as_numbers_of(name, part, "token", K, letters))
    return np.concatenate(parts), np.array(list(map(len, parts)), dtype=np.intp)


def strong_components(edges: np.ndarray, nodes: int) -> np.ndarray:
    """For each node 0 .. nodes - 1, the least node of its strongly connected component.

    Two nodes are in one component if each can be reached from the other along ``edges (E, 2)``, which lead from the
    first column to the second.

    Notes
    -----
    Kosaraju's algorithm (Sharir, 1981), with a stack instead of recursion: two visits per node and edge.

    Examples
    --------
    >>> from attsvm.theory.next_tokens import strong_components
    >>> strong_components(np.array([[1, 3], [3, 1], [3, 2]]), 4)
    array([0, 1, 2, 1])
    """
    component = np.arange(nodes)
    finished = [node for part in _reached(edges, np.unique(edges).tolist()) for node in part]
    for members in _reached(edges[:, ::-1], finished[::-1]):
        component[members] = min(members)
    return component


def _reached(edges: np.ndarray, roots: list[int]) -> Iterator[list[int]]:
    """For each root, the nodes that are reached from it and from no earlier root, in the order in which a depth-first
    search finishes them."""
    following: dict[int, list[int]] = {root: [] for root in roots}
    for node, other in edges.tolist():
        following[node].append(other)
    seen = set()
    for root in roots:
        found, path = [], [(root, False)]
        while path:
            node, done = path.pop()
            if done:
                found.append(node)
            elif node not in seen:
                seen.add(node)
                path += [(node, True), *((other, False) for other in following[node])]
        if found:
            yield found


@dataclass(repr=False, eq=False)
class SoftLabels(Result):
    """A linear decoder as a problem of attention: the tokens are the vocabulary, and the queries are the contexts.

    Attributes
    ----------
    data : Data
        ``data.probabilities(W)`` is the decoder's next-token distribution ``softmax(W h)``, (m, K).
    problem : Problem
        Mean cross-entropy of the counts; convex in W (K, d).
    selected : (m, K) bool array
        The support of each context: the tokens that follow it at least once.
    counts : (m, K) array
        As given.
    """

    data: Data
    problem: Problem
    selected: np.ndarray
    counts: np.ndarray

    _derived = ("selected",)

    def _title(self) -> str:
        several = (self.selected.sum(axis=1) > 1).sum()
        return (
            f"Linear decoder of {self.data.dk} tokens from {len(self.data)} contexts of dimension {self.data.dz}, "
            f"{several} with several next tokens"
        )

    def columns(self) -> dict[str, Any]:
        """One row for each token that follows a context."""
        context, token = self.selected.nonzero()
        return {"context": context, "token": token, "count": self.counts[context, token]}

    def _state(self) -> dict[str, Any]:
        return {"contexts": self.data.queries, "counts": self.counts}

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> SoftLabels:
        return soft_labels(**state)


def soft_labels(contexts: ArrayLike, counts: ArrayLike) -> SoftLabels:
    """Turns contexts and counts of next tokens into the data and the problem of a linear decoder ``softmax(W h)``.

    Training on ``-sum_jz counts_jz log softmax(W h_j)_z / sum_jz counts_jz`` gives finite log-odds within each support
    S_j, the tokens with a positive count, and diverges towards

        ``min ||W||  s.t.  (W h_j)_z = (W h_j)_z'`` within S_j, ``(W h_j)_z >= (W h_j)_t + 1`` for t outside of it,

    if some W meets this (contexts may be dependent, as when two are equal).  It is ``solve_svm(found.data,
    found.selected)``; with free contexts and a vanishing ridge, in the nuclear norm.

    Parameters
    ----------
    contexts : (m, d) array_like
        Embedding of each context, a row h_j.
    counts : (m, K) array_like
        How often each token follows the context, or numbers in proportion to that: nonnegative, with a positive number
        in every row.

    Returns
    -------
    SoftLabels

    Notes
    -----
    Source: "Implicit Optimization Bias of Next-token Prediction in Linear Models" (Thrampoulidis, 2024).

    Tokens that follow the same contexts have the same weights in the SVM.  In the Frobenius norm the SVM of a large
    vocabulary is solved by Newton's method, whose unknowns are the levels of the contexts (the answer's ``method`` is
    "newton").  The level of a context is the highest logit that a token outside of S_j may have; given
    the levels, the weights of a token do not depend on other tokens.

    Examples
    --------
    >>> found = attsvm.theory.soft_labels([[1.0, 0.0], [0.0, 1.0]], [[3, 1, 0], [0, 0, 2]])
    >>> print(attsvm.solve_svm(found.data, found.selected).W.round(3))
    [[ 0.333 -0.333]
     [ 0.333 -0.333]
     [-0.667  0.667]]
    """
    H = as_floats("contexts", contexts, "m, d")
    counts = as_floats("counts", counts, "m, K", (len(H), None))
    m, K = counts.shape
    if counts.min() < 0:
        raise ValueError(f"counts must not be negative, got {counts.min():g}")
    most = counts.max(axis=1)
    if most.min() == 0:
        raise ValueError(f"counts must have a positive number in every row, got none in row {most.argmin()}")
    shares = counts / most.max()  # the counts are scaled, so that their sums stay in range
    shares /= shares.sum() / m  # the problem's mean over contexts then weights each context by its counts
    one = np.ones(m, dtype=np.intp)
    layout = Layout(K * one, one, single=True, begin=0 * one)  # all contexts see the same tokens
    data = Data("linear decoder", K, H, None, layout)
    return SoftLabels(data, Problem(data, None, LogarithmHead(shares), loss="linear"), counts > 0, counts.copy())
