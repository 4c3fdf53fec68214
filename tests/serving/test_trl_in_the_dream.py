"""TRL's GRPOTrainer trains in a served dream, over OpenEnv's own client, in the two ways that TRL knows: docs/serving.md shows both."""

from __future__ import annotations

import copy

import pytest
import torch
from builders import VOCABULARY, make_model
from datasets import Dataset
from dream_server import serving
from openenv.core import GenericEnvClient
from trl import GRPOConfig, GRPOTrainer

from components.language.markers import END
from components.policy.cloning import clone
from components.policy.policy import Policy
from components.policy.prompt import observed, opening, parse_reply, turn
from components.training_config import CloningConfig, LoraConfig

STOP = VOCABULARY.marker_id(END)
GROUP, STEPS = 8, 6


@pytest.fixture(scope="module")
def cloned(lessons):
    """A tiny policy that goes to the desk, where it wins, or to the fridge, where it does not."""
    policy = Policy(make_model(hidden=32), VOCABULARY)
    settings = CloningConfig(epochs=60, learning_rate=8e-3, batch_tokens=1024, lora=LoraConfig())
    clone(policy, [*lessons, lessons[1]], lambda history, action: "works", settings, 0)
    return policy.model


def arguments(folder, **more):
    plain = {"use_cpu": True, "bf16": False, "report_to": [], "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True}
    return GRPOConfig(
        str(folder), max_steps=STEPS, per_device_train_batch_size=GROUP, num_generations=GROUP, beta=0.0, learning_rate=3e-3,
        logging_steps=1, seed=3, lr_scheduler_type="constant", **plain, **more,
    )  # fmt: skip


def tokenizer():
    found = copy.deepcopy(VOCABULARY.tokenizer)
    found.pad_token, found.eos_token = "<pad>", "<end>"
    return found


def episode(model, url, task, max_steps=5):
    """One episode of `model` in the dream, as TRL's rollout function gives it: what it wrote, and a mask over what it read."""
    with GenericEnvClient(base_url=url).sync() as env:
        env.reset(task_id=task.id)
        prompt, completion, logprobs, mask, reward = VOCABULARY.encode([*opening(task), *turn(task)]), [], [], [], 0.0
        for _ in range(max_steps):
            ids = torch.tensor([prompt + completion])
            with torch.no_grad():
                out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=24, eos_token_id=STOP,
                                     pad_token_id=STOP, top_k=0, top_p=1.0, output_logits=True, return_dict_in_generate=True)  # fmt: skip
            written = out.sequences[0, ids.shape[1] :].tolist()
            logprobs += [float(row[0].log_softmax(-1)[token]) for row, token in zip(out.logits, written, strict=True)]
            completion, mask = completion + written, mask + [1] * len(written)
            result = env.step({"action": parse_reply(VOCABULARY.pieces(written))[1]})
            reward += result.reward
            if result.done:
                break
            read = VOCABULARY.encode([*observed(result.observation["state"]), *turn(task)])
            completion, mask, logprobs = completion + read, mask + [0] * len(read), logprobs + [0.0] * len(read)
        return prompt, completion, logprobs, mask, reward


def chance(model, task, action):
    """Log-probability of the whole reply that holds `action`, at the first turn."""
    prompt, reply = VOCABULARY.encode([*opening(task), *turn(task)]), VOCABULARY.encode(["works", *_action(action)])
    with torch.no_grad():
        logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return float(logits.gather(1, torch.tensor(reply)[:, None]).sum())


def _action(action):
    from components.language.markers import ACTION

    return [ACTION, action, END]


def test_grpo_learns_in_the_dream_by_a_rollout_function(cloned, learnt, lessons, tmp_path):
    task, rewards = lessons[0].task, []
    model = copy.deepcopy(cloned)
    with serving(learnt, lessons, rows=2, steps=5) as url:

        def rollouts(prompts, trainer):
            played = [episode(trainer.model, url, task) for _ in prompts]
            rewards.append([reward for *_, reward in played])
            keys = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "outcome")
            return dict(zip(keys, map(list, zip(*played, strict=True)), strict=True))

        trainer = GRPOTrainer(
            model, lambda completions, outcome, **_: outcome, arguments(tmp_path), Dataset.from_list([{"prompt": task.id}] * GROUP),
            processing_class=tokenizer(), rollout_func=rollouts,
        )  # fmt: skip
        trainer.train()
    assert len(rewards) == STEPS and all(len(group) == GROUP for group in rewards)
    assert {value for group in rewards for value in group} == {0.0, 1.0}
    print(rewards, chance(cloned, task, "go to desk 1"), chance(model, task, "go to desk 1"))
    assert chance(model.cpu(), task, "go to desk 1") > chance(cloned, task, "go to desk 1") + 0.1
