"""The measurements of `dreamgym bench gpu`: one function each, figures by name out."""

from __future__ import annotations

import contextlib
import gc
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from components.config import LoraConfig, VllmConfig
from components.errors import DreamGymError
from components.language.adapters import without_adapters
from components.language.compute import Compute
from components.language.engines.kept_cache import KeptCacheEngine
from components.language.engines.vllm.model_hosts import close_all, host_for
from components.language.engines.vllm.vllm_engine import VllmEngine
from components.language.training.fine_tuning import supervised_finetune
from flows.jobs.bench.gpu_shapes import TINY, Shape

Figures = dict[str, float]
WARM_UP = 3
"""Updates that are not measured."""
TURNS = 4
"""Turns of a rollout: a text is appended, a reply is generated."""


class _TimeIsUp(Exception):
    """The measurement has enough updates."""


def measure_peak(compute: Compute, size: int = 8192) -> Figures:
    """Operations per second of one large product of matrices: what this device reaches."""
    dtype = torch.bfloat16 if compute.precision == "bf16" else torch.float32
    left, right = (torch.randn(size, size, device=compute.device, dtype=dtype) for _ in range(2))
    for _ in range(2):
        left @ right
    synchronize(compute)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 1.0:
        left @ right
        synchronize(compute)
        count += 1
    return {"matmul_tflops": 2 * size**3 * count / (time.perf_counter() - start) / 1e12}


def measure_equality(compute: Compute) -> Figures:
    """Largest differences between this device and the CPU in fp32: losses, log-probabilities."""
    losses, logprobs = {}, {}
    for device in ("cpu", compute.device):
        place = Compute(device)
        model = TINY.model(place)
        losses[device] = supervised_finetune(
            model, TINY.examples(8), epochs=2, learning_rate=1e-3, batch_tokens=256, seed=0, compute=place
        ).losses
        session = _kept_cache(TINY.model(place)).open(TINY.rows)
        written = session.generate(_prompts(TINY), stop=set(), max_new_tokens=8, temperature=0.0)
        logprobs[device] = [value for row in written.values() for value in row.logprobs]
    return {
        "equality/loss_gap": _largest_gap(losses["cpu"], losses[compute.device]),
        "equality/logprob_gap": _largest_gap(logprobs["cpu"], logprobs[compute.device]),
    }


def measure_training(shape: Shape, compute: Compute, seconds: float, figures: Figures) -> Figures:
    """Tokens per second of fine-tuning, its share of the device's peak (MFU), and memory.

    The peak is that of `measure_peak` in `figures`.
    """
    peak = 1e12 * figures["matmul_tflops"]
    compute = replace(compute, gradient_checkpointing=shape.lora.rank > 0 and compute.device == "cuda")
    reset_memory(compute)
    model = shape.model(compute)
    ends: list[tuple[float, int]] = []

    def on_step(step: int, tokens: int, loss: float) -> None:
        ends.append((time.perf_counter(), tokens))
        if len(ends) > WARM_UP and ends[-1][0] - ends[WARM_UP - 1][0] > seconds:
            raise _TimeIsUp

    with contextlib.suppress(_TimeIsUp):
        supervised_finetune(
            model,
            shape.examples(64),
            epochs=1e6,
            learning_rate=1e-5,
            batch_tokens=shape.batch_tokens,
            seed=0,
            on_step=on_step,
            compute=compute,
        )
    rate = (ends[-1][1] - ends[WARM_UP - 1][1]) / (ends[-1][0] - ends[WARM_UP - 1][0])
    return {
        f"training/{shape.name}/tokens_per_second": rate,
        f"training/{shape.name}/mfu": rate * shape.flops_per_token(model) / peak,
        f"training/{shape.name}/memory_gb": peak_memory_gb(compute),
    }


def measure_trl(shape: Shape, compute: Compute, seconds: float) -> Figures:
    """Tokens per second of TRL's SFTTrainer on the same examples and model."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    reset_memory(compute)
    model = shape.model(compute)
    rows = shape.batch_tokens // shape.length
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            synchronize(compute)
            ends.append(time.perf_counter())
            if len(ends) > WARM_UP and ends[-1] - ends[WARM_UP - 1] > seconds:
                control.should_training_stop = True

    examples = [segment for example in shape.examples(64) for segment in example.segments]
    data = Dataset.from_list(
        [
            {"input_ids": part.tokens, "completion_mask": [int(bool(w)) for w in part.loss]}
            for part in examples
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            folder,
            max_steps=1_000_000,
            per_device_train_batch_size=rows,
            learning_rate=1e-5,
            max_length=shape.length,
            bf16=compute.precision == "bf16",
            use_cpu=compute.device == "cpu",
            gradient_checkpointing=shape.lora.rank > 0 and compute.device == "cuda",
            completion_only_loss=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        tokenizer = _placeholder_tokenizer()
        SFTTrainer(
            model, settings, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()]
        ).train()
    steps = len(ends) - WARM_UP
    rate = steps * rows * shape.length / (ends[-1] - ends[WARM_UP - 1])
    return {
        f"trl/{shape.name}/tokens_per_second": rate,
        f"trl/{shape.name}/memory_gb": peak_memory_gb(compute),
    }


def _placeholder_tokenizer() -> Any:
    """A tokenizer for a trainer that wants one; the examples are token ids already."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({"<pad>": 0, "<end>": 1, "<unk>": 2}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )


def measure_kept_cache(shape: Shape, compute: Compute) -> Figures:
    """Generated tokens per second of rollouts with the kept cache."""
    reset_memory(compute)
    model = compute.for_decoding(without_adapters(replace(shape, lora=LoraConfig()).model(compute)))
    rate = _rollout_rate(_kept_cache(model), shape, compute)
    return {f"kept_cache/{shape.name}/tokens_per_second": rate}


def measure_vllm(shape: Shape, compute: Compute, cache_gb: float) -> Figures:
    """Generated tokens per second of rollouts with vLLM, of raw vLLM, and what a sync of weights takes."""
    reset_memory(compute)
    compute = replace(compute, engine="vllm", vllm=VllmConfig(cache_gb=cache_gb))
    model = shape.model(compute)
    start = time.perf_counter()
    host: Any = host_for(model, compute, "vllm", range(3, shape.config.vocab_size))
    figures = {f"vllm/{shape.name}/start_seconds": time.perf_counter() - start}
    engine = VllmEngine(host, without_adapters(model).config)
    _rollout_rate(engine, shape, compute)
    rates = {"vllm": _rollout_rate(engine, shape, compute), "raw_vllm": _raw_rate(host, shape)}
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
    prompts = _prompts(shape)
    synchronize(compute)
    start = time.perf_counter()
    for _ in range(TURNS):
        session.generate(prompts, stop=set(), max_new_tokens=shape.new, temperature=1.0)
        prompts = {row: shape.tokens(stream, shape.turn) for row in range(shape.rows)}
    return TURNS * shape.rows * shape.new / (time.perf_counter() - start)


def _raw_rate(host: Any, shape: Shape) -> float:
    """The same turns through `LLM.generate`, without a session."""
    stream = random.Random(2)
    rows = list(_prompts(shape, seed=2).values())
    settings = host.vllm.SamplingParams(
        max_tokens=shape.new, temperature=1.0, top_k=0, ignore_eos=True, logprobs=0, detokenize=False
    )
    start = time.perf_counter()
    for _ in range(TURNS):
        inputs = [{"prompt_token_ids": row} for row in rows]
        outputs = host.llm.generate(inputs, settings, use_tqdm=False)
        rows = [
            [*row, *output.outputs[0].token_ids, *shape.tokens(stream, shape.turn)]
            for row, output in zip(rows, outputs, strict=True)
        ]
    return TURNS * shape.rows * shape.new / (time.perf_counter() - start)


def _prompts(shape: Shape, seed: int = 0) -> dict[int, list[int]]:
    stream = random.Random(seed)
    return {row: shape.tokens(stream, shape.prompt) for row in range(shape.rows)}


def _kept_cache(model: Any) -> KeptCacheEngine:
    vocabulary: Any = None  # a session takes and gives ids
    return KeptCacheEngine(model, vocabulary)


def _largest_gap(first: list[float], second: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(first, second, strict=True))


def synchronize(compute: Compute) -> None:
    """Wait until the device has done what it was asked for."""
    if compute.device == "cuda":
        torch.cuda.synchronize()


def reset_memory(compute: Compute) -> None:
    """Free what an earlier measurement held, and begin to count anew."""
    gc.collect()
    if compute.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory_gb(compute: Compute) -> float:
    """The most memory that tensors took since `reset_memory`, in GB; 0 on a CPU."""
    return torch.cuda.max_memory_allocated() / 1e9 if compute.device == "cuda" else 0.0


def attempt(measure: Callable[[], Figures]) -> tuple[Figures, str]:
    """The figures of one measurement, or why it failed: the others go on."""
    try:
        return measure(), ""
    except DreamGymError as error:
        return {}, str(error)
    except Exception as error:  # a missing package, no memory, a lost device
        return {}, f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
