"""The heads of a model of 7B shape: memory beyond the model and time, for two of its layers, and the estimate for all.

    PYTHONPATH=tests/support python tests/benchmarks/bench_models.py    (pip install ".[bench]")

A Llama of width 4,096 with 32 heads and random weights in bfloat16 (a vocabulary of 2,000: the embeddings run no
attention) reads 20 texts of 1,000 tokens, a text a batch, keys in memory maps.  Peak memory is that of the process over
what it held once the model was built; seconds are those of the processor, all threads together.  Each row runs in a
process of its own.  Writes results/models.json.
"""

import tempfile
import time

import attsvm.torch
import torch
import transformers
from machine import apart, write

LAYERS, HEADS, LAYERS_OF_7B = 2, 32, 32
ANALYZED = 4  # heads
SHARPER = 2.0  # times the queries' and keys' weights at birth: a third of the queries are hard


def megabytes(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


def build(groups):
    config = transformers.LlamaConfig(
        hidden_size=4096, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=groups,
        intermediate_size=11008, vocab_size=2000, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaModel._from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(SHARPER)
    return model, [torch.randint(2000, (1, 1000)) for _ in range(20)]


def timed(step):
    """Result, processor and wall seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = step()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def measured(row):
    groups = row["groups"]
    model, texts = build(groups)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from here on
    before = megabytes("VmRSS")
    with tempfile.TemporaryDirectory() as store:
        found, read_cpu, read_wall = timed(
            lambda: attsvm.torch.read(model, [{"input_ids": ids} for ids in texts], store=store)
        )
        read_peak = megabytes("VmHWM") - before
        # The first heads of the first layer, and one random head: as many as there are heads for each layer's one.
        reports, cpu, wall = timed(
            lambda: attsvm.heads.analyze_model(found[:ANALYZED], null=False, splits=1, nuclear_queries=0)
        )
        _, null_cpu, _ = timed(lambda: attsvm.heads.analyze_head(found[0], splits=1, nuclear_queries=0))
        null_cpu -= cpu / ANALYZED
    hours = (read_cpu / LAYERS + HEADS * cpu / ANALYZED + null_cpu) * LAYERS_OF_7B / 3600
    return {
        "groups": groups,
        "model_megabytes": before,
        "read_peak_megabytes": read_peak,
        "peak_megabytes": megabytes("VmHWM") - before,
        "read_cpu_seconds": read_cpu,
        "read_wall_seconds": read_wall,
        "heads_analyzed": ANALYZED,
        "analyze_cpu_seconds_per_head": cpu / ANALYZED,
        "analyze_wall_seconds": wall,
        "random_head_and_choices_cpu_seconds": null_cpu,
        "queries": [report.fit.queries for report in reports],
        "hard": [report.hard for report in reports],
        "status": sorted({report.fit.status for report in reports}),
        "cpu_hours_for_32_layers": hours,
    }


if __name__ == "__main__":
    print("wrote", write("models", apart(measured, [{"groups": 8}, {"groups": 32}])))
