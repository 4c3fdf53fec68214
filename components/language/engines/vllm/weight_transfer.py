"""All weights of a model to vLLM servers while they run, by vLLM's weight transfer (NCCL, or gloo on a CPU).

Trainer and servers form one group, in which the trainer is rank 0. The group is made anew when the servers
change. During a transfer the servers answer nothing, and afterwards their caches are empty.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx
import torch
from torch import Tensor

from components.errors import ConfigError, TrainingError
from components.language.compute import Compute
from components.language.engines.vllm.library import import_vllm
from components.language.engines.vllm.plugin import GLOO, register
from components.language.engines.vllm.weights import base_weights, merged

NCCL = "nccl"
WEIGHT_INFO = "/weight_info"
"""Path at which a server names its weights: by the last transfer, or `default` since its start."""
WIRE = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Type in which weights are sent, by precision; the servers convert to their own."""


def start_command(role: str, backend: str) -> str:
    """How to start a server that takes all weights of one model."""
    return (
        f"VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --served-model-name {role} --logprobs-mode "
        f'processed_logprobs --weight-transfer-config \'{{"backend": "{backend}"}}\''
    )


def backend_for(compute: Compute) -> str:
    """The backend between trainer and servers: NCCL from a GPU, gloo from a CPU."""
    return NCCL if compute.device == "cuda" else GLOO


class WeightTransfer:
    """Sends weights to all of some servers at once.

    Args:
        compute: device and precision of the trainer, and the timeout of an answer.
        role: name under which the servers serve the model, for messages.

    Raises:
        ConfigError: vLLM is missing here, or this is a worker process of the run: servers hold one version.
    """

    def __init__(self, compute: Compute, role: str) -> None:
        if multiprocessing.parent_process() is not None:
            raise ConfigError(
                "A worker process wants to send all weights to the vLLM servers.",
                "Expected one process that does: the servers hold one version of them.",
                "Set rl.dream.processes=1, or lora.rank=16.",
            )
        import_vllm()
        register()
        self._compute = compute
        self._start = start_command(role, backend_for(compute))
        self._urls: list[str] = []
        self._version = ""
        self._source: Any = _Weights(WIRE[compute.precision])
        self._engine: Any = None

    def send(self, model: Any, urls: Sequence[str], version: str) -> None:
        """Give all servers of `urls` the present weights of `model`; adapters are merged.

        Args:
            version: name of these weights, which a server tells at `WEIGHT_INFO` until it is started again.

        Raises:
            ConfigError: a server takes no weights.
            TrainingError: a server did not take them.
        """
        client = _Servers(urls, self._compute.vllm.timeout_seconds, self._start)
        self._source.take(merged(model))
        try:
            if self._engine is None or self._urls != list(urls) or client.versions() != {self._version}:
                self._engine = self._meet(client, urls)
                self._urls = list(urls)
            client.version = self._version = version
            self._engine.client = client
            client.pause()
            self._engine.send_weights()
            client.resume()
        except (ConfigError, TrainingError):
            self._engine = None
            raise
        except Exception as error:  # NCCL's, gloo's and vLLM's own
            self._engine = None
            reason = " ".join(str(error).split())
            raise TrainingError(
                f"The weights did not reach the servers {', '.join(urls)}: {reason:.300}",
                f"Expected servers of vLLM {backend_for(self._compute)} that this machine can reach.",
                f"Start each with: {self._start}",
            ) from error
        finally:
            self._source.take(None)
            client.close()

    def _meet(self, client: _Servers, urls: Sequence[str]) -> Any:
        """Form the group of the trainer and every worker of the servers."""
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        address, port = own_address(urls)
        options: dict[str, Any] = {
            "master_address": address,
            "master_port": port,
            "world_size": 1 + client.count_workers(),
            "rank": 0,
        }
        if backend_for(self._compute) == NCCL:
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

            info: Any = NCCLTrainerInitInfo(**options)
        else:
            from components.language.engines.vllm.gloo_backend import GlooTrainerInitInfo

            info = GlooTrainerInitInfo(**options, timeout_seconds=self._compute.vllm.timeout_seconds)
        return WeightTransferTrainerFactory.trainer_init(info, client=client, source=self._source)


_TRANSFERS: dict[str, tuple[Compute, WeightTransfer]] = {}


def transfer_for(compute: Compute, role: str) -> WeightTransfer:
    """The one transfer to the servers of this role: a server is in one group, so two models share it.

    Raises:
        ConfigError: as `WeightTransfer`.
    """
    if role not in _TRANSFERS or _TRANSFERS[role][0] != compute:
        _TRANSFERS[role] = compute, WeightTransfer(compute, role)
    return _TRANSFERS[role][1]


class _Weights:
    """The weights of one model, as vLLM's `WeightSource`: described, then given in the same order."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._weights: list[tuple[str, Tensor]] = []

    def take(self, model: Any) -> None:
        """Give the weights of `model` from now on; of None: none."""
        self._weights = [] if model is None else list(base_weights(model))

    def metadata(self) -> list[Any]:
        """Name, type and shape of each weight."""
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, self._dtype, tuple(weight.shape)) for name, weight in self._weights]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self._weights:
            yield name, weight.to(self._dtype)


class _Servers:
    """The control messages of a transfer to several servers at once, as vLLM's `VLLMWeightSyncClient`."""

    def __init__(self, urls: Sequence[str], timeout_seconds: float, start: str) -> None:
        self._urls = list(urls)
        self._start = start
        self._client = httpx.Client(timeout=timeout_seconds)
        self._pool = ThreadPoolExecutor(max(len(urls), 1), thread_name_prefix="weight-transfer")
        self._workers: dict[str, int] = {}
        self.version = ""

    def close(self) -> None:
        """Close the connections; a message that still waits for a lost group is not waited for."""
        self._pool.shutdown(wait=False)
        self._client.close()

    def count_workers(self) -> int:
        """The number of vLLM's worker processes of all servers.

        Raises:
            ConfigError: a server has no such messages.
            TrainingError: a server does not answer.
        """
        answers = self._each(lambda url: self._send("GET", url, "/get_world_size"))
        self._workers = {url: int(answer["world_size"]) for url, answer in answers.items()}
        return sum(self._workers.values())

    def versions(self) -> set[str]:
        """The names of the weights that the servers hold."""
        return set(map(read_version, self._each(lambda url: self._send("GET", url, WEIGHT_INFO)).values()))

    def pause(self) -> None:
        """Wait for answers that are in the making, begin no further ones, and empty the cache."""
        self._each(lambda url: self._send("POST", url, "/pause?mode=wait&clear_cache=true"))

    def resume(self) -> None:
        """Answer again."""
        self._each(lambda url: self._send("POST", url, "/resume"))

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Tell each server which ranks are its own, from `rank_offset` on."""
        offsets, offset = {}, int(init_info["rank_offset"])
        for url in self._urls:
            offsets[url] = offset
            offset += self._workers[url]

        def tell(url: str) -> Any:
            body = {"init_info": init_info | {"rank_offset": offsets[url]}}
            return self._send("POST", url, "/init_weight_transfer_engine", body)

        self._each(tell)

    def start_weight_update(self) -> None:
        """Announce a transfer."""
        self._each(lambda url: self._send("POST", url, "/start_weight_update"))

    def update_weights(self, update_info: Any) -> None:
        """Announce names, types and shapes; each server answers when it has received all."""
        self._each(lambda url: self._send("POST", url, "/update_weights", {"update_info": update_info}))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the transfer; the servers then tell `version`."""
        body = {"weight_version": self.version}
        self._each(lambda url: self._send("POST", url, "/finish_weight_update", body))

    def _each(self, send: Callable[[str], Any]) -> dict[str, Any]:
        """Address -> answer of each server, asked at the same time; the first error is raised at once."""
        asked = {self._pool.submit(send, url): url for url in self._urls}
        answers = {asked[future]: future.result() for future in as_completed(asked)}
        return {url: answers[url] for url in self._urls}

    def _send(self, method: str, url: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer of one server.

        Raises:
            ConfigError: it does not know the message.
            TrainingError: it does not answer, or refuses.
        """
        try:
            response = self._client.request(method, url + path, json=body)
        except httpx.HTTPError as error:
            raise TrainingError(
                f"The server {url} does not answer {path}: {type(error).__name__}: {error}",
                "Expected an answer during a transfer of weights.",
                "Start it again, then type the same command: it continues from its checkpoint.",
            ) from error
        if response.status_code == 404:
            raise ConfigError(
                f"The server {url} takes no weights: it does not know {path}.",
                "Expected a server in vLLM's development mode, or LoRA adapters (lora.rank=16).",
                f"Start it with: {self._start}",
            )
        if response.status_code >= 400:
            raise TrainingError(
                f"The server {url} refuses {path}: status {response.status_code}: {response.text:.300}",
                "Expected a server that takes weights.",
                f"Start it with: {self._start}",
            )
        return response.json() if response.content else None


def read_version(answer: Any) -> str:
    """The name of the weights in a server's answer at `WEIGHT_INFO`."""
    return str(answer["weight_version"])


def own_address(urls: Sequence[str]) -> tuple[str, int]:
    """This machine's address on the way to the servers, and a free port.

    If some are on this machine and others are not, it is the address on the way to one that is not.
    """
    address = ""
    for url in urls:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "127.0.0.1", port), timeout=10) as connection:
            address = connection.getsockname()[0]
        if not ip_address(address).is_loopback:
            break
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind((address, 0))
        return address, free.getsockname()[1]
