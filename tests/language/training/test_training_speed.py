"""Speed of a training by hand-computed operations; what only a GPU tells is put in its place."""

import math

import pytest
import torch
from builders import make_model

from components.config import LoraConfig
from components.evaluation.metrics.reproduction import left_out
from components.language.adapters import add_lora
from components.language.compute import Compute
from components.language.training import training_speed
from components.language.training.examples import Example, Segment
from components.language.training.fine_tuning import supervised_finetune
from components.language.training.training_run import TrainingPlan, TrainingRun
from components.language.training.training_speed import SpeedWatch, operations_per_token, peak_operations
from language.training.test_training import EXAMPLES, SETTINGS, weights_of

WIDTH, VOCABULARY = 16, 340


def test_operations_of_a_token_by_hand():
    model = make_model(hidden=WIDTH)
    blocks = sum(w.numel() for name, w in model.named_parameters() if "embed" not in name)
    head = VOCABULARY * WIDTH
    assert operations_per_token(model, 0.25) == 6 * blocks + 0.25 * 6 * head
    adapted = add_lora(make_model(hidden=WIDTH), LoraConfig(rank=2, targets="all-linear"))
    adapters = sum(w.numel() for w in adapted.parameters() if w.requires_grad)
    assert operations_per_token(adapted, 0.5) == 4 * (blocks + adapters) + 2 * adapters + 0.5 * 4 * head


def test_peaks_are_found_by_the_name_of_the_gpu():
    assert peak_operations("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_operations("NVIDIA H100 PCIe") == 756e12
    assert peak_operations("NVIDIA H200") == 989e12
    assert peak_operations("NVIDIA A10G") == 70e12 and peak_operations("NVIDIA L40S") == 362e12
    assert peak_operations("Radeon") is None


def test_a_training_on_a_cpu_tells_tokens_per_second():
    record = supervised_finetune(make_model(), EXAMPLES, epochs=1, **SETTINGS)
    assert record.speed == {"tokens_per_second": pytest.approx(record.tokens / record.seconds)}


class FakeGpu:
    """torch.cuda of one H100: there is none here."""

    def __init__(self, monkeypatch, utilisations):
        readings = iter(utilisations)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3_000_000_000)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
        monkeypatch.setattr(torch.cuda, "utilization", lambda device: self.read(next(readings)))
        monkeypatch.setattr(training_speed, "SAMPLE_SECONDS", 0.0)

    def read(self, value):
        if isinstance(value, Exception):
            raise value
        return value


def watch_on_gpu(model):
    watch = SpeedWatch(model, 0.25)
    watch._gpu = torch.device("cuda")
    return watch


def test_on_a_gpu_memory_peak_and_utilisation_are_told(monkeypatch):
    FakeGpu(monkeypatch, [60, 80])
    model = make_model(hidden=WIDTH)
    watch = watch_on_gpu(model)
    watch.look()
    watch.look()
    figures = watch.figures(tokens=2_000_000, seconds=4.0)
    assert figures == {
        "tokens_per_second": 500_000,
        "gpu_memory_gb": 3.0,
        "gpu_mfu": pytest.approx(500_000 * operations_per_token(model, 0.25) / 989e12),
        "gpu_utilisation": 0.7,
    }
    names = {f"clone/{name}": {} for name in figures}
    assert left_out(names, {}).keys() == names.keys(), "a reproduction does not compare them"


def test_without_the_package_that_reads_it_the_utilisation_is_nan(monkeypatch):
    FakeGpu(monkeypatch, [ModuleNotFoundError("pynvml"), ModuleNotFoundError("pynvml")])
    watch = watch_on_gpu(make_model())
    watch.look()
    assert math.isnan(watch.figures(10, 1.0)["gpu_utilisation"])


def run_of(model):
    plan = TrainingPlan(1e-2, 10_000, 2, "adamw", SETTINGS["batch_tokens"], 0, 0, Compute())
    return TrainingRun(model, plan)


def test_reading_losses_late_changes_no_weight_and_no_loss():
    """As on a GPU, where the next update is begun before the loss of the last one is read."""
    at_once, late = run_of(make_model()), run_of(make_model())
    late.reads_late = True
    reported = []
    for run in (at_once, late):
        for batch in [EXAMPLES[:3], EXAMPLES[3:6], [Example([Segment([5, 6], [0, 0])])], EXAMPLES[6:8]]:
            run.step(batch)
            reported.append((run is late, [update.step for update in run.take_updates()]))
        run.read_losses()
    assert [steps for is_late, steps in reported if not is_late] == [[1], [2], [3], [4]]
    assert [steps for is_late, steps in reported if is_late] == [[], [1], [2, 3], []]
    assert [update.step for update in late.take_updates()] == [4]
    assert at_once.record.losses == late.record.losses and len(late.record.losses) == 3
    assert torch.equal(weights_of(at_once.model), weights_of(late.model))


def test_a_checkpoint_holds_the_loss_that_was_not_read_yet():
    run = run_of(make_model())
    run.reads_late = True
    run.step(EXAMPLES[:3])
    assert not run.record.losses
    assert len(run.state_dict()["record"]["losses"]) == 1
