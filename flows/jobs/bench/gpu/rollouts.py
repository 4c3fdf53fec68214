"""Generation in `dreamgym bench gpu`: rollouts on the kept cache and on vLLM, raw vLLM, a sync of weights."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from components.config import LoraConfig, VllmConfig
from components.language.adapters import without_adapters
from components.language.compute import Compute
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.engines.players import run_players
from components.language.engines.vllm.engine_thread import engine_thread
from components.language.engines.vllm.model_hosts import close_all, host_for
from components.language.engines.vllm.requests import Request
from components.language.engines.vllm.vllm_engine import VllmEngine
from flows.jobs.bench.gpu.device import Figures, reset_memory, synchronize
from flows.jobs.bench.gpu.shapes import Shape

TURNS = 4
"""Turns of a rollout: a text is appended, a reply is generated."""


def measure_kept_cache(shape: Shape, compute: Compute) -> Figures:
    """Generated tokens per second of rollouts with the kept cache."""
    reset_memory(compute)
    model = compute.for_decoding(without_adapters(replace(shape, lora=LoraConfig()).model(compute)))
    rate = _rollout_rate(kept_cache_engine(model), shape, compute)
    return {f"kept_cache/{shape.name}/tokens_per_second": rate}


def measure_vllm(shape: Shape, compute: Compute, cache_gb: float) -> Figures:
    """Generated tokens per second of rollouts with vLLM, of raw vLLM, and what a sync of weights takes."""
    reset_memory(compute)
    compute = replace(compute, engine="vllm", vllm=VllmConfig(cache_gb=cache_gb))
    model = shape.model(compute)
    start = time.perf_counter()
    host: Any = host_for(model, compute, "vllm", range(3, shape.config.vocab_size), "policy")
    figures = {f"vllm/{shape.name}/start_seconds": time.perf_counter() - start}
    engine = VllmEngine(host, without_adapters(model).config)
    _rollout_rate(engine, shape, compute)
    rates = {"vllm": _rollout_rate(engine, shape, compute), "raw_vllm": _raw_rate(host, shape)}
    rates |= _mixed_rates(engine, shape)
    figures |= {f"{name}/{shape.name}/tokens_per_second": rate for name, rate in rates.items()}
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(1e-3 * torch.randn_like(weight))
    start = time.perf_counter()
    host.take_weights(model)
    figures[f"vllm/{shape.name}/sync_seconds"] = time.perf_counter() - start
    figures[f"vllm/{shape.name}/sync_gap"] = host.gap
    close_all()
    return figures


def _rollout_rate(engine: Any, shape: Shape, compute: Compute) -> float:
    """Generated tokens per second of `TURNS` turns of all rows."""
    stream = random.Random(1)
    session = engine.open(shape.rows, shape.prompt)
    prompts = first_prompts(shape)
    synchronize(compute)
    start = time.perf_counter()
    for _ in range(TURNS):
        session.generate(prompts, stop=set(), max_new_tokens=shape.new, temperature=1.0)
        prompts = {row: shape.tokens(stream, shape.turn) for row in range(shape.rows)}
    return TURNS * shape.rows * shape.new / (time.perf_counter() - start)


def _mixed_rates(engine: VllmEngine, shape: Shape) -> Figures:
    """Generated tokens per second of turns of different lengths: all rows in lockstep, and each by itself."""
    stream = random.Random(3)
    lengths = [[stream.randint(1, 2 * shape.new - 1) for _ in range(TURNS)] for _ in range(shape.rows)]
    turns = [shape.tokens(stream, shape.turn) for _ in range(TURNS)]
    prompts = first_prompts(shape, seed=3)
    total = sum(map(sum, lengths))

    def play(row: int) -> None:
        session = engine.open(1)
        for turn, length in enumerate(lengths[row]):
            prompt = turns[turn] if turn else prompts[row]
            session.generate({0: prompt}, stop=set(), max_new_tokens=length, temperature=1.0)

    start = time.perf_counter()
    run_players([partial(play, row) for row in range(shape.rows)], shape.rows)
    separate = total / (time.perf_counter() - start)
    start = time.perf_counter()
    rows = list(first_prompts(shape, seed=4).values())
    for turn in range(TURNS):
        requests = [
            Request(tokens, seed=row, limit=lengths[row][turn], affinity=row)
            for row, tokens in enumerate(rows)
        ]
        written = engine.host.generate(requests, stop=set(), temperature=1.0)
        rows = [[*row, *reply.tokens, *turns[turn]] for row, reply in zip(rows, written, strict=True)]
    return {"vllm_mixed": separate, "vllm_mixed_lockstep": total / (time.perf_counter() - start)}


def _raw_rate(host: Any, shape: Shape) -> float:
    """The same turns through `LLM.generate`, without a session."""
    stream = random.Random(2)
    rows = list(first_prompts(shape, seed=2).values())
    settings = host.vllm.SamplingParams(
        max_tokens=shape.new, temperature=1.0, top_k=0, ignore_eos=True, logprobs=0, detokenize=False
    )
    start = time.perf_counter()
    for _ in range(TURNS):
        inputs = [{"prompt_token_ids": row} for row in rows]
        outputs = engine_thread().call(partial(host.llm.generate, inputs, settings, use_tqdm=False))
        rows = [
            [*row, *output.outputs[0].token_ids, *shape.tokens(stream, shape.turn)]
            for row, output in zip(rows, outputs, strict=True)
        ]
    return TURNS * shape.rows * shape.new / (time.perf_counter() - start)


def first_prompts(shape: Shape, seed: int = 0) -> dict[int, list[int]]:
    """The first prompt of each row."""
    stream = random.Random(seed)
    return {row: shape.tokens(stream, shape.prompt) for row in range(shape.rows)}


def kept_cache_engine(model: Any) -> KeptCacheEngine:
    """The kept cache over `model`."""
    vocabulary: Any = None  # a session takes and gives ids
    return KeptCacheEngine(model, vocabulary)
