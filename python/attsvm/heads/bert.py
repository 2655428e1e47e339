"""A BERT model read from its folder, and its forward pass in NumPy.

One layer, for tokens x of a sentence (heads h = 1..H, rows of x W^T cut into H parts):

    attended_h = softmax(q_h k_h^T / sqrt(m)) v_h,    y = norm(x + [attended_1 .. attended_H] Wo^T + bo)
    x_next     = norm(y + gelu(y W1^T + b1) W2^T + b2)

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2018).
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..common.pool import one_blas_thread
from ..common.progress import counted
from .arrays import from_arrays
from .model import Head
from .wordpiece import WordPiece

LINEAR = ("query.weight", "query.bias", "key.weight", "key.bias")
SAFE_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
# What has to be so for this forward pass to be the model's.
REQUIRED = {"model_type": "bert", "position_embedding_type": "absolute", "hidden_act": "gelu"}
SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "max_position_embeddings")
LARGEST_SIZE = 10**9
# Taylor's cubic from the next of these nodes is off by at most 12 / 24 / 2048^4 = 3e-14; beyond 6, erf is 1 to 2e-17.
NODES_PER_UNIT, LARGEST = 1024, 6


def read_safetensors(path: Any) -> dict[str, np.ndarray]:
    """Arrays of a ``.safetensors`` file by name, memory-mapped (bfloat16 is widened to float32).

    Parameters
    ----------
    path : path-like

    Returns
    -------
    dict of str to array

    Notes
    -----
    The format: the length of the header (8 bytes, little endian), the header (JSON: type, shape and place of each
    array), the arrays.

    Examples
    --------
    >>> import attsvm
    >>> import json, pathlib, tempfile
    >>> header = json.dumps({"b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    >>> path = pathlib.Path(tempfile.mkdtemp(), "two.safetensors")
    >>> _ = path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    >>> attsvm.heads.read_safetensors(path)["b"].tolist()
    [0.0, 0.0]
    """
    if Path(path).stat().st_size < 8:  # an empty file cannot be mapped
        raise ValueError(f"{path} is not a safetensors file this reader knows: it has no header")
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(raw[:8].tobytes(), "little")
    try:
        header = json.loads(raw[8 : 8 + size].tobytes())
        header.pop("__metadata__", None)
        return {name: _array(raw[8 + size :], **entry) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not a safetensors file this reader knows: {error}") from None


def _array(raw: np.ndarray, dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> np.ndarray:
    begin, end = data_offsets
    if not 0 <= begin <= end <= len(raw):
        raise ValueError(f"an array lies at {begin:.3g} to {end:.3g} of {len(raw)} bytes")
    array = raw[begin:end].view(SAFE_TYPES[dtype]).reshape(shape)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else array


class Bert:
    """A BERT encoder: weights, tokenizer, forward pass.

    Attributes
    ----------
    layers, heads, width : int
        Layers, heads per layer, length d of a token.
    longest : int
        Tokens that a sentence may have, [CLS] and [SEP] among them.
    tokenizer : WordPiece
    """

    def __init__(self, config: dict[str, Any], weights: dict[str, np.ndarray], tokenizer: WordPiece):
        self.layers, self.heads = config["num_hidden_layers"], config["num_attention_heads"]
        self.width, self.longest = config["hidden_size"], config["max_position_embeddings"]
        self.tokenizer = tokenizer
        self._small = config["layer_norm_eps"]
        self._weights = weights

    def __repr__(self) -> str:
        return f"<attsvm Bert: {self.layers} layers of {self.heads} heads, d={self.width}>"

    def read(self, sentences: Sequence[str], layers: Sequence[int] | None = None, progress: bool = False) -> list[Head]:
        """Pass sentences through the model; what every head of these layers is given, and its K and Q.

        Parameters
        ----------
        sentences : list of str
        layers : list of int, optional
            All by default.
        progress : bool
            Show a bar.

        Returns
        -------
        list of Head
            ``self.heads`` for each layer, in order.
        """
        if isinstance(sentences, str) or not all(isinstance(sentence, str) for sentence in sentences):
            came = "a str" if isinstance(sentences, str) else "another type in it"
            raise TypeError(f"sentences must be a list of str, got {came}")
        wanted = range(self.layers) if layers is None else sorted(set(layers))
        if len(sentences) == 0 or len(wanted) == 0:
            raise ValueError(
                f"sentences and layers must not be empty, got {len(sentences)} sentences and {len(wanted)} layers"
            )
        if wanted[0] < 0 or wanted[-1] >= self.layers:
            raise ValueError(f"layers must lie in 0 .. {self.layers - 1}, got {list(wanted)}")
        ids = [self.tokenizer.encode(sentence) for sentence in sentences]
        for i, some in enumerate(ids):
            if len(some) > self.longest:
                raise ValueError(f"sentences[{i}] has {len(some)} tokens, the model takes {self.longest}")
        words = [[self.tokenizer.tokens[i] for i in some] for some in ids]
        found: list[Head] = []
        steps = wanted[-1] + 1
        passed: Iterable[list[np.ndarray]] = self.inputs(ids, steps)
        for layer, inputs in enumerate(counted(passed, steps, "read", "layer") if progress else passed):
            if layer in wanted:
                part = f"encoder.layer.{layer}.attention.self."
                weights = [self._weights[part + name] for name in LINEAR]
                single = [x.astype(np.float32) for x in inputs]
                made = from_arrays(single, *weights, heads=self.heads, tokens=words, layer=layer)
                values = self._linear(part + "value.", np.concatenate(inputs))
                norms = np.linalg.norm(values.reshape(len(values), self.heads, -1), axis=2)
                module = part.removesuffix(".")
                found += [replace(h, value_norms=norms[:, h.number], module=module) for h in made]
        return found

    def inputs(self, ids: Sequence[Sequence[int]], steps: int) -> Iterator[list[np.ndarray]]:
        """Tokens (T_i, d) of each sentence before layer 0, 1, .. (after the last layer: the model's output).

        Sentences of equal length go together, so that nothing is padded and nothing masked.
        """
        groups: dict[int, list[int]] = {}
        for i, some in enumerate(ids):
            groups.setdefault(len(some), []).append(i)
        states = [self._embed(np.array([ids[i] for i in members])) for members in groups.values()]
        with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
            for layer in range(steps):
                if layer > 0:
                    states = list(pool.map(functools.partial(self._pass, layer - 1), states))
                flat: list[Any] = [None] * len(ids)
                for members, x in zip(groups.values(), states, strict=True):
                    for i, part in zip(members, x, strict=True):
                        flat[i] = part
                yield flat

    @np.errstate(over="ignore", invalid="ignore")  # from_arrays refuses what is no number
    def _embed(self, ids: np.ndarray) -> np.ndarray:
        part = "embeddings."
        x = self._weights[part + "word_embeddings.weight"][ids].astype(np.float64)
        x += self._weights[part + "position_embeddings.weight"][: ids.shape[1]]
        x += self._weights[part + "token_type_embeddings.weight"][0]
        return self._norm(part + "LayerNorm.", x)

    @np.errstate(over="ignore", invalid="ignore")
    def _pass(self, layer: int, x: np.ndarray) -> np.ndarray:
        """Outputs (n, T, d) of a layer from its inputs."""
        part = f"encoder.layer.{layer}."
        n, T, d = x.shape
        m = d // self.heads
        q, k, v = (
            self._linear(part + f"attention.self.{name}.", x).reshape(n, T, self.heads, m).swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        logits = q @ k.swapaxes(2, 3) / math.sqrt(m)
        prob = np.exp(logits - logits.max(axis=3, keepdims=True))
        prob /= prob.sum(axis=3, keepdims=True)
        attended = (prob @ v).swapaxes(1, 2).reshape(n, T, d)
        y = x + self._linear(part + "attention.output.dense.", attended)
        y = self._norm(part + "attention.output.LayerNorm.", y)
        hidden = self._linear(part + "intermediate.dense.", y)
        for sentence in hidden:  # one at a time stays in the cache
            sentence[:] = gelu(sentence)
        return self._norm(part + "output.LayerNorm.", y + self._linear(part + "output.dense.", hidden))

    def _linear(self, part: str, x: np.ndarray) -> np.ndarray:
        weight, bias = (self._weights[part + name].astype(np.float64) for name in ("weight", "bias"))
        flat = x.reshape(-1, x.shape[-1]) @ weight.T  # one product, not one for each sentence
        flat += bias
        return flat.reshape(*x.shape[:-1], -1)

    def _norm(self, part: str, x: np.ndarray) -> np.ndarray:
        weight, bias = (self._weights[part + name].astype(np.float64) for name in ("weight", "bias"))
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + self._small) * weight + bias


def gelu(x: np.ndarray) -> np.ndarray:
    """``x Phi(x)``, Phi the normal distribution; NumPy has no erf, so Taylor's cubic from the nearest of many nodes."""
    at = x * math.sqrt(0.5)
    nearest = np.rint(np.clip(at, -LARGEST, LARGEST) * NODES_PER_UNIT).astype(np.intp) + LARGEST * NODES_PER_UNIT
    node, value, slope = NODES[nearest], ERF[nearest], SLOPE[nearest]
    step = np.clip(at, -LARGEST, LARGEST) - node
    erf = value + slope * step * (1 - step * (node - step * (2 * node**2 - 1) / 3))
    return 0.5 * x * (1 + erf)


NODES = np.arange(-LARGEST * NODES_PER_UNIT, LARGEST * NODES_PER_UNIT + 1) / NODES_PER_UNIT
ERF = np.array([math.erf(node) for node in NODES])
SLOPE = 2 / math.sqrt(math.pi) * np.exp(-(NODES**2))


def read_bert(folder: Any) -> Bert:
    """A BERT model from a folder in the Hugging Face layout; NumPy is all it needs.

    Parameters
    ----------
    folder : path-like
        With ``config.json``, ``model.safetensors`` and ``vocab.txt``.

    Returns
    -------
    Bert
        ``read_bert(folder).read(sentences)`` gives its heads, for :func:`analyze_head` and :func:`analyze_model`.

    Raises
    ------
    FileNotFoundError
        Naming the file that is missing.
    ValueError
        Naming what in the configuration is not a BERT with absolute positions, or which weight is missing.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.heads.read_bert("no such folder")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'no such folder/config.json'
    """
    folder = Path(folder)
    config = _read_json(folder / "config.json")
    for key, value in REQUIRED.items():
        if config.get(key, value) != value:
            raise ValueError(f"{folder / 'config.json'} must have {key} {value!r}, got {config[key]!r}")
    for key in SIZES:
        size = config.get(key)
        if not isinstance(size, int):
            raise ValueError(f"{folder / 'config.json'} has no {key}")
        if not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"{folder / 'config.json'} must have {key} from 1 to {LARGEST_SIZE}, got {size:.3g}")
    if config["hidden_size"] % config["num_attention_heads"] != 0:
        raise ValueError(f"{folder / 'config.json'} must have a hidden_size that num_attention_heads divides")
    small = config.setdefault("layer_norm_eps", 1e-12)
    if isinstance(small, bool) or not isinstance(small, (int, float)) or not 0 <= small < 1:
        raise ValueError(f"{folder / 'config.json'} must have a layer_norm_eps from 0 to 1, got {small!r:.40}")
    options = folder / "tokenizer_config.json"
    lowercase = _read_json(options).get("do_lower_case") if options.is_file() else None
    tokenizer = WordPiece(folder / "vocab.txt", lowercase is not False)
    weights = read_safetensors(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): array for name, array in weights.items()}
    for name, shape in _shapes(config, len(tokenizer.tokens)):
        if name not in weights:
            raise ValueError(f"{folder / 'model.safetensors'} has no {name}")
        if weights[name].shape[1:] != shape[1:] or len(weights[name]) < shape[0]:
            raise ValueError(f"{name} must have shape {shape}, got {weights[name].shape}")
    return Bert(config, weights, tokenizer)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _shapes(config: dict[str, Any], vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of every weight, by name; tables of embeddings may be longer."""
    layers, _, d, inner, longest = (config[key] for key in SIZES)
    yield "embeddings.word_embeddings.weight", (vocabulary, d)
    yield "embeddings.position_embeddings.weight", (longest, d)
    yield "embeddings.token_type_embeddings.weight", (1, d)
    linear = [(f"attention.self.{name}", d, d) for name in ("query", "key", "value")]
    linear += [("attention.output.dense", d, d), ("intermediate.dense", inner, d), ("output.dense", d, inner)]
    yield from (("embeddings.LayerNorm." + name, (d,)) for name in ("weight", "bias"))
    for part in (f"encoder.layer.{layer}." for layer in range(layers)):
        for name, rows, columns in linear:
            yield f"{part}{name}.weight", (rows, columns)
            yield f"{part}{name}.bias", (rows,)
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            yield from ((f"{part}{norm}.{name}", (d,)) for name in ("weight", "bias"))
