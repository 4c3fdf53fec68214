"""One vLLM in this process: it holds a model's weights, takes new ones, and generates.

All that vLLM does happens in the engine thread.
"""

from __future__ import annotations

import copy
import gc
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor

from components.config import VllmConfig
from components.errors import ConfigError, TrainingError
from components.language.adapters import save_adapters, without_adapters
from components.language.compute import Compute
from components.language.engines.engine_protocol import Generation
from components.language.engines.vllm.engine_thread import engine_thread
from components.language.engines.vllm.library import (
    import_vllm,
    installed_version,
    private_temporary_files,
    process_state_kept,
    quiet,
)
from components.language.engines.vllm.probe import SyncProbe, probe_text, trainer_logprobs
from components.language.engines.vllm.requests import Request, barred_ids, sampling_parameters
from components.language.engines.vllm.weights import (
    base_weights,
    has_servable_adapters,
    merged,
    signature_of,
    weights_digest,
)
from components.language.sequence_limits import longest_sequence

LORA_RANKS = (8, 16, 32, 64, 128, 256, 512)
"""Ranks that vLLM allocates; an adapter takes the next one."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


class ResidentModel:
    """A vLLM for models of one architecture; `take_weights` makes it compute as a given one.

    `vllm` is the library, `llm` its object.

    Args:
        model: the architecture, with or without adapters. Its weights are not taken yet.
        compute: device and precision.
        ids: the ids that the tokenizer knows, of which the probe's text consists.

    Raises:
        ConfigError: vLLM is missing, does not know the architecture, or has no memory for it.
    """

    def __init__(self, model: Any, compute: Compute, ids: Sequence[int]) -> None:
        self.signature = signature_of(model, compute)
        self._compute = compute
        self.vllm = import_vllm()
        inner = without_adapters(model)
        self._barred = barred_ids(inner)
        self._rank = model.peft_config["default"].r if has_servable_adapters(model) else 0
        self.llm = engine_thread().call(lambda: self._start(inner, compute.vllm))
        self._text = probe_text(ids)
        self._probe = SyncProbe(compute.precision)
        self._adapters: Any = None
        self._base_digest = ""
        self._digest = ""
        self.syncs = 0

    def _start(self, model: Any, settings: VllmConfig) -> Any:
        """A vLLM with random weights: the real ones come by the first sync."""
        on_cpu = self._compute.device == "cpu"
        longest = longest_sequence(model.config)
        options: dict[str, Any] = {
            "runner": "generate",
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "dtype": DTYPES[self._compute.precision],
            "max_model_len": longest,
            "max_num_seqs": settings.rows,
            "kv_cache_memory_bytes": round(settings.cache_gb * 1e9),
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "disable_log_stats": True,
            "seed": 0,
        }
        if on_cpu:
            # With chunks, a request with a seed of its own fails on a CPU: its generator cannot step back.
            options |= {
                "enforce_eager": True,
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": max(longest, 4096),
            }
        if self._rank:
            rank = next((size for size in LORA_RANKS if size >= self._rank), self._rank)
            options |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
        with tempfile.TemporaryDirectory() as directory:
            config = copy.deepcopy(model.config)
            config.architectures = [type(model).__name__]  # a model that was never saved has none
            config.save_pretrained(directory)
            try:
                with process_state_kept(), quiet(), private_temporary_files():
                    return self.vllm.LLM(model=directory, **options)
            except Exception as error:  # an unknown architecture, no memory, a kernel that is missing
                package, version = installed_version() or ("vllm", "?")
                reason = " ".join(str(error).split())
                raise ConfigError(
                    f"{package} {version} cannot hold a {model.config.model_type} of "
                    f"{model.num_parameters():,} weights with a cache of {settings.cache_gb:g} GB: "
                    f"{reason:.400}",
                    "Expected an architecture that vLLM knows, and free memory for weights and cache.",
                    "Lower vllm.cache_gb, or set engine=kept-cache.",
                ) from error

    def take_weights(self, model: Any) -> None:
        """Compute as `model` from now on; nothing happens if its weights are here already.

        Raises:
            TrainingError: the weights did not arrive.
        """
        digest = weights_digest(model)
        if digest == self._digest:
            return
        with _guarded("take weights"):
            engine_thread().call(lambda: self._sync(model))
            found = self._logprobs_of_probe()
        self.syncs += 1
        self._probe.require_arrived(trainer_logprobs(model, self._text, self._compute), found, "vLLM")
        self._digest = digest

    @property
    def gap(self) -> float:
        """Mean difference in nats between trainer and vLLM on the probe, at the last sync."""
        return self._probe.gap

    def _sync(self, model: Any) -> None:
        with process_state_kept():
            if self._rank:
                self._sync_base(model)
                self._sync_adapters(model)
            else:
                self._sync_base(merged(model))
            if not self.llm.reset_prefix_cache():
                raise RuntimeError("requests are still running, whose cache is of the weights before")

    def _sync_base(self, model: Any) -> None:
        weights = list(base_weights(model))
        digest = repr([value.double().sum().item() for _, value in weights])
        if digest == self._base_digest:
            return
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
        self._base_digest = digest

    def _sync_adapters(self, model: PeftModel) -> None:
        from vllm.lora.request import LoRARequest

        number = 1 if self._adapters is None else self._adapters.lora_int_id + 1
        with tempfile.TemporaryDirectory() as directory:
            save_adapters(model, Path(directory))
            request = LoRARequest(f"adapters-{number}", number, directory)
            if self._adapters is not None:
                self.llm.llm_engine.remove_lora(self._adapters.lora_int_id)
            self.llm.llm_engine.add_lora(request)
        self._adapters = request

    def _logprobs_of_probe(self) -> Tensor:
        parameters = self.vllm.SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False
        )
        (output,) = engine_thread().generate(self.llm, [self._text], [parameters], self._adapters)
        places = zip(self._text[1:], output.prompt_logprobs[1:], strict=True)
        return torch.tensor([values[token].logprob for token, values in places])

    def generate(
        self, requests: Sequence[Request], *, stop: set[int], temperature: float
    ) -> list[Generation]:
        """Continue each request; the generations in their order.

        Raises:
            TrainingError: vLLM failed.
        """
        parameters = [
            self.vllm.SamplingParams(
                detokenize=False,
                **sampling_parameters(request, stop=stop, temperature=temperature, barred=self._barred),
            )
            for request in requests
        ]
        prompts = [request.tokens for request in requests]
        with _guarded("generate"):
            outputs = engine_thread().generate(self.llm, prompts, parameters, self._adapters)
        return [_generation(output.outputs[0]) for output in outputs]

    def close(self) -> None:
        """End this vLLM and free its memory."""
        engine_thread().call(self.llm.llm_engine.engine_core.shutdown)
        self.llm = None
        gc.collect()
        if self._compute.device == "cuda":
            torch.cuda.empty_cache()


@contextmanager
def _guarded(doing: str) -> Iterator[None]:
    """Report a failure of vLLM as an expected one: a GPU may be lost in the middle."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())
        raise TrainingError(
            f"vLLM failed to {doing}: {type(error).__name__}: {reason:.300}",
            "Expected an engine that answers.",
            "Type the same command again: it continues from its checkpoint.",
        ) from error


def _generation(output: Any) -> Generation:
    tokens = list(output.token_ids)
    logprobs = [values[token].logprob for token, values in zip(tokens, output.logprobs, strict=True)]
    return Generation(tokens, logprobs, output.finish_reason == "stop")
