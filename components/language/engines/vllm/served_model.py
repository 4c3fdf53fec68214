"""A model behind vLLM servers: token ids over HTTP, and weights that change while the servers run.

- **Adapters.** The servers hold the base model, which never changes. Each sync saves the adapters to a
  directory that the servers can read, loads them under a new name, and removes the earlier ones. So one set
  of servers serves the policy and the experience model of a run.
- **All weights** (`weight_transfer.py`), to servers that serve one of the two models alone, under its name.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from components.errors import ConfigError, TrainingError
from components.language.adapters import save_adapters, without_adapters
from components.language.compute import Compute
from components.language.engines.engine_protocol import Generation
from components.language.engines.vllm.probe import SyncProbe, mean_gap, probe_text, trainer_logprobs
from components.language.engines.vllm.replicas import START, Replicas
from components.language.engines.vllm.requests import Request, barred_ids, sampling_parameters
from components.language.engines.vllm.vllm_engine import ROLES, Role
from components.language.engines.vllm.weight_transfer import (
    WEIGHT_INFO,
    backend_for,
    read_version,
    start_command,
    transfer_for,
)
from components.language.engines.vllm.weights import has_servable_adapters, signature_of, weights_digest
from components.language.sequence_limits import longest_sequence

COMPLETIONS = "/v1/completions"
_NUMBERS = itertools.count(1)
"""Numbers of the adapters that this process has loaded; no name is used twice."""
_HOLDERS: dict[str, int] = {}
"""Address of a server that got all weights -> id of the `ServedModel` that sent them last."""


class ServedModel:
    """A model of which the servers of `compute.vllm.servers` hold the base; see `ModelHost`.

    Args:
        model: with adapters, or exactly the model that the servers hold, or any of its architecture if they
            serve it alone.
        compute: precision of the trainer, and the servers.
        ids: the ids that the tokenizer knows, of which the probe's text consists.
        role: which of `ROLES` the model is. Servers that serve a model of this name are its alone.

    Raises:
        ConfigError: no server is named, their model is shorter than ours, or none is for this role.
        TrainingError: no server answers.
    """

    def __init__(self, model: Any, compute: Compute, ids: Sequence[int], role: Role) -> None:
        self.signature = signature_of(model, compute) + role
        self._role = role
        self._compute = compute
        self._barred = barred_ids(without_adapters(model))
        self._replicas = Replicas(compute.vllm.servers, compute.vllm.timeout_seconds)
        self._base = self._base_name(longest_sequence(without_adapters(model).config))
        self._name = self._base
        self._has_sent = False
        self._text = probe_text(ids)
        self._probe = SyncProbe(compute.precision)
        self._directory = Path(tempfile.mkdtemp(prefix="adapters-", dir=compute.vllm.shared_dir or None))
        self._digest = ""
        self.syncs = 0

    def _base_name(self, longest: int) -> str:
        """The name of the servers' model; those that serve the other role's are left out."""
        entries = self._replicas.ask_all("/v1/models", None, _base_entry)
        if any(entry["id"] in ROLES for entry in entries.values()):
            entries = {url: entry for url, entry in entries.items() if entry["id"] == self._role}
            if not entries:
                raise ConfigError(
                    f"None of the servers {', '.join(self._replicas.alive)} serves the {self._role}.",
                    "Expected servers of each of the two models, or servers that both share.",
                    f"Start one with: {start_command(self._role, backend_for(self._compute))}",
                )
            self._replicas.keep(entries)
        for url, entry in entries.items():
            if int(entry["max_model_len"]) < longest:
                raise ConfigError(
                    f"The server {url} takes {entry['max_model_len']} tokens, the model {longest}.",
                    "Expected as many.",
                    f"Start it with --max-model-len {longest}.",
                )
        found = {str(entry["id"]) for entry in entries.values()}
        if len(found) > 1:
            raise ConfigError(
                f"The servers hold different models: {', '.join(sorted(found))}.", "Expected one.", START
            )
        return found.pop()

    def _is_sent_whole(self, model: Any) -> bool:
        """Whether all weights are sent: the servers are this model's alone, and adapters cannot be loaded."""
        return self._base == self._role and not has_servable_adapters(model)

    @property
    def gap(self) -> float:
        """Mean difference in nats between trainer and server on the probe, at the last sync."""
        return self._probe.gap

    def take_weights(self, model: Any) -> None:
        """Serve `model` from now on; nothing happens if its weights are there already.

        Raises:
            ConfigError: the model has no adapters, and is not the one that the servers hold.
            TrainingError: the weights did not arrive, or no server answers.
        """
        digest = weights_digest(model)
        if self._has_sent:
            self._leave_out_started_again()
        if not self._replicas.alive:
            self._replicas.take_back(partial(self._prepare, model))
        if digest != self._digest or not self._holds_the_servers():
            self._sync(model)
            self.syncs += 1
            self._digest = digest
        if self._replicas.lost:
            self._replicas.take_back(partial(self._prepare, model))

    def _leave_out_started_again(self) -> None:
        """Leave out servers that lost the weights they were sent, and those that do not answer.

        A server that was started again answers under the same name, with the weights of its files.
        """
        for url, version in self._replicas.ask_all(WEIGHT_INFO, None, read_version).items():
            if _HOLDERS.get(url) == id(self) and version != self._digest:
                self._replicas.leave_out(url, f"it was started again and holds the weights {version:.12}")

    def _sync(self, model: Any) -> None:
        if self._is_sent_whole(model):
            self._send(model, self._replicas.alive)
        elif has_servable_adapters(model):
            self._load_adapters(model)
        found = self._replicas.ask_all(COMPLETIONS, self._probe_request(), self._read_probe)
        expected = trainer_logprobs(model, self._text, self._compute)
        before = self._probe.before
        for url, logprobs in found.items():
            if not has_servable_adapters(model) and not self._is_sent_whole(model):
                self._require_base(url, mean_gap(expected, logprobs))
            self._probe.before = before
            self._probe.require_arrived(expected, logprobs, f"the server {url}")

    def _send(self, model: Any, urls: Sequence[str]) -> None:
        transfer_for(self._compute, self._role).send(model, urls, weights_digest(model))
        self._has_sent = True
        _HOLDERS.update(dict.fromkeys(urls, id(self)))

    def _holds_the_servers(self) -> bool:
        """Whether no other model of this process has sent its weights there since."""
        return not self._has_sent or all(_HOLDERS[url] == id(self) for url in self._replicas.alive)

    def _load_adapters(self, model: Any) -> None:
        old_name, self._name = self._name, f"{self._directory.name}-{next(_NUMBERS)}"
        path = self._directory / self._name
        save_adapters(model, path)
        self._replicas.tell_all("/v1/load_lora_adapter", {"lora_name": self._name, "lora_path": str(path)})
        if old_name != self._base:
            self._replicas.tell_all("/v1/unload_lora_adapter", {"lora_name": old_name}, may_refuse=True)
            shutil.rmtree(self._directory / old_name)

    def _prepare(self, model: Any, url: str) -> None:
        """Give a server that was started again the weights in use, and compare its numbers.

        Raises:
            TrainingError: it does not compute as this model.
        """
        if self._is_sent_whole(model):
            self._send(model, [url])
        elif self._name != self._base:
            body = {"lora_name": self._name, "lora_path": str(self._directory / self._name)}
            with contextlib.suppress(TrainingError):  # it may hold them still, or never have had any
                self._replicas.tell(url, "/v1/unload_lora_adapter", {"lora_name": self._name})
            self._replicas.tell(url, "/v1/load_lora_adapter", body)
        found = self._replicas.ask_one(url, COMPLETIONS, self._probe_request(), self._read_probe)
        expected = trainer_logprobs(model, self._text, self._compute)
        SyncProbe(self._compute.precision).require_arrived(expected, found, f"the server {url}")

    def _probe_request(self) -> dict[str, Any]:
        body = {"model": self._name, "prompt": self._text, "max_tokens": 1, "temperature": 0.0}
        return body | {"prompt_logprobs": 0}

    def _require_base(self, url: str, gap: float) -> None:
        """Raise ConfigError if a model without adapters is not the one that the server holds."""
        if not gap <= self._probe.tolerance:
            raise ConfigError(
                f"The server {url} is off by {gap:.2g} nats a token from this model, which has no adapters "
                "that could be loaded there.",
                "Expected LoRA adapters on the servers' model, or servers of this very model.",
                "Set lora.rank=16 and start the servers with the model of backbone.path. Or send all weights "
                f"to servers of one model: {start_command(self._role, backend_for(self._compute))}",
            )

    def _read_probe(self, answer: Any) -> Tensor:
        places = answer["choices"][0]["prompt_logprobs"][1:]
        return torch.tensor(
            [values[str(token)]["logprob"] for token, values in zip(self._text[1:], places, strict=True)]
        )

    def generate(
        self, requests: Sequence[Request], *, stop: set[int], temperature: float
    ) -> list[Generation]:
        """Continue each request; the generations in their order.

        Raises:
            TrainingError: no server answers, one answers something else, or the servers hold the weights of
                another model by now.
        """
        if not self._holds_the_servers():
            raise TrainingError(
                f"The servers of the {self._role} hold the weights of another model by now.",
                "Expected one model at a time.",
                "Set engine=kept-cache, or lora.rank=16.",
            )
        bodies = [
            (
                request.affinity,
                {"model": self._name, "prompt": request.tokens, "return_token_ids": True}
                | sampling_parameters(request, stop=stop, temperature=temperature, barred=self._barred),
            )
            for request in requests
        ]
        return self._replicas.ask_each(COMPLETIONS, bodies, _generation)

    def close(self) -> None:
        """Remove this model's adapters from the servers, and close the connections."""
        try:
            if self._name != self._base and self._replicas.alive:
                self._replicas.tell_all("/v1/unload_lora_adapter", {"lora_name": self._name})
        except TrainingError:
            pass  # the server has been started again since, without these adapters
        self._replicas.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _base_entry(answer: Any) -> Any:
    return next(entry for entry in answer["data"] if not entry.get("parent"))


def _generation(answer: Any) -> Generation:
    choice = answer["choices"][0]
    tokens = [int(token) for token in choice["token_ids"]]
    logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
    if len(tokens) != len(logprobs) or choice["finish_reason"] not in ("stop", "length"):
        raise ValueError("tokens without log-probabilities")
    return Generation(tokens, logprobs, choice["finish_reason"] == "stop")
