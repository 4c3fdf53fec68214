"""Training in `dreamgym bench gpu`: equality with the CPU, and speed beside TRL's SFTTrainer."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch

from components.language.adapters import without_adapters
from components.language.compute import Compute
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.training_speed import operations_per_token, peak_operations
from flows.jobs.bench.gpu.device import Figures, peak_memory_gb, reset_memory, synchronize
from flows.jobs.bench.gpu.rollouts import first_prompts, kept_cache_engine
from flows.jobs.bench.gpu.shapes import LOSS_SHARE, TINY, Shape
from flows.jobs.bench.sft import sft_row
from flows.jobs.bench.trl_trainer import QUIET

WARM_UP = 3
"""Updates that are not measured."""


class _TimeIsUp(Exception):
    """The measurement has enough updates."""


def measure_equality(compute: Compute) -> Figures:
    """Largest differences between this device and the CPU in fp32: losses, log-probabilities."""
    losses, logprobs = {}, {}
    for device in ("cpu", compute.device):
        place = Compute(device)
        model = TINY.model(place)
        losses[device] = supervised_finetune(
            model, TINY.examples(8), epochs=2, learning_rate=1e-3, batch_tokens=256, seed=0, compute=place
        ).losses
        session = kept_cache_engine(TINY.model(place)).open(TINY.rows)
        written = session.generate(first_prompts(TINY), stop=set(), max_new_tokens=8, temperature=0.0)
        logprobs[device] = [value for row in written.values() for value in row.logprobs]
    return {
        "equality/loss_gap": _largest_gap(losses["cpu"], losses[compute.device]),
        "equality/logprob_gap": _largest_gap(logprobs["cpu"], logprobs[compute.device]),
    }


def measure_training(shape: Shape, compute: Compute, seconds: float, figures: Figures) -> Figures:
    """Tokens per second of fine-tuning, memory, and the share of the device's peak.

    `share_of_matmul` is the share of `measure_peak`, found in `figures`; `mfu` that of the data sheet, on a
    GPU that is known.
    """
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
    work = rate * operations_per_token(model, LOSS_SHARE)
    peak = peak_operations(torch.cuda.get_device_name()) if compute.device == "cuda" else None
    return {
        f"training/{shape.name}/tokens_per_second": rate,
        f"training/{shape.name}/share_of_matmul": work / (1e12 * figures["matmul_tflops"]),
        f"training/{shape.name}/memory_gb": peak_memory_gb(compute),
    } | ({} if peak is None else {f"training/{shape.name}/mfu": work / peak})


def measure_trl(shape: Shape, compute: Compute, seconds: float, *, packed: bool) -> Figures:
    """Tokens per second of TRL's SFTTrainer on the same examples and model, without padding.

    Args:
        packed: whether it puts examples one after the other into rows. On a GPU it then uses Liger's kernels
            and the package flash-attn, if they are installed.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTTrainer

    reset_memory(compute)
    model = shape.model(compute)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            synchronize(compute)
            ends.append(time.perf_counter())
            if len(ends) > WARM_UP and ends[-1] - ends[WARM_UP - 1] > seconds:
                control.should_training_stop = True

    if packed and compute.device == "cuda" and find_spec("flash_attn"):
        without_adapters(model).set_attn_implementation("flash_attention_2")
    rows = 1 if packed else shape.batch_tokens // shape.length
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            model,
            _trl_settings(folder, shape, compute, rows, packed),
            train_dataset=Dataset.from_list([sft_row(example) for example in shape.examples(64)]),
            processing_class=placeholder_tokenizer(),
            callbacks=[Clock()],
        )
        dataset: Any = trainer.train_dataset
        lengths = [len(row) for row in dataset["input_ids"]]
        trainer.train()
    tokens_a_step = rows * sum(lengths) / len(lengths)
    rate = (len(ends) - WARM_UP) * tokens_a_step / (ends[-1] - ends[WARM_UP - 1])
    name = "trl_packed" if packed else "trl"
    return {
        f"{name}/{shape.name}/tokens_per_second": rate,
        f"{name}/{shape.name}/memory_gb": peak_memory_gb(compute),
    }


def _trl_settings(folder: str, shape: Shape, compute: Compute, rows: int, packed: bool) -> Any:
    from trl import SFTConfig

    on_gpu = compute.device == "cuda"
    return SFTConfig(
        folder,
        max_steps=1_000_000,
        per_device_train_batch_size=rows,
        learning_rate=1e-5,
        max_length=shape.batch_tokens if packed else shape.length,
        packing=packed,
        train_sampling_strategy="random" if packed else "group_by_length",
        use_liger_kernel=packed and on_gpu and find_spec("liger_kernel") is not None,
        bf16=compute.precision == "bf16",
        use_cpu=not on_gpu,
        gradient_checkpointing=shape.lora.rank > 0 and on_gpu,
        completion_only_loss=True,
        **QUIET,
        dataloader_num_workers=0,
    )


def placeholder_tokenizer() -> Any:
    """A tokenizer for a trainer that wants one; the examples are token ids already."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({"<pad>": 0, "<end>": 1, "<unk>": 2}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )


def _largest_gap(first: list[float], second: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(first, second, strict=True))
