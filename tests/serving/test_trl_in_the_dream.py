"""TRL's GRPOTrainer trains in a served dream, in both ways of docs/guides/serve.md."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import pytest
import torch
import trl
from builders import AGENT, VOCABULARY, WORLD, make_episode, make_model, make_task, with_thoughts
from datasets import Dataset
from dream_server import serving
from openenv.core import GenericEnvClient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer

from components.config import CloningConfig, ExperienceModelConfig, LoraConfig
from components.experience.formats.training_examples import render_trajectory
from components.experience.model import ExperienceModel
from components.language.training.fine_tuning import supervised_finetune
from components.language.vocabulary.markers import ACTION, END
from components.policy.behaviour_cloning import clone
from components.policy.policy import Policy

STOP = VOCABULARY.marker_id(END)
GROUP, STEPS = 8, 6


HELD = " Holding nothing."
RIGHT, WRONG = "go to desk 1", "go to fridge 1"


@pytest.fixture(scope="module")
def two_ways():
    """Two episodes of one task: it succeeds at the desk, not at the fridge."""
    done = make_episode(make_task(), (RIGHT, "At desk 1: mug 1." + HELD), won=True, episode="desk")
    return [done, make_episode(make_task(), (WRONG, "At fridge 1: closed." + HELD), episode="fridge")]


@pytest.fixture(scope="module")
def dream(two_ways):
    """An experience model that knows both episodes by heart."""
    model = make_model(hidden=32)
    examples = [render_trajectory(WORLD, episode, [[]]) for episode in two_ways]
    supervised_finetune(model, examples, epochs=200, learning_rate=8e-3, batch_tokens=4096, seed=0)
    return ExperienceModel(model, VOCABULARY, ExperienceModelConfig(max_new_tokens=40))


@pytest.fixture(scope="module")
def cloned(two_ways):
    """A tiny policy that goes to both places equally often."""
    policy = Policy(make_model(hidden=32, seed=2), VOCABULARY)
    settings = CloningConfig(epochs=90, learning_rate=8e-3, batch_tokens=4096)
    demonstrations = [with_thoughts(episode, "works") for episode in two_ways]
    clone(policy, demonstrations, settings, 0, lora=LoraConfig())
    return policy.model


def arguments(folder, learning_rate, **more):
    plain = {
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return GRPOConfig(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        beta=0.0,
        learning_rate=learning_rate,
        logging_steps=1,
        seed=3,
        lr_scheduler_type="constant",
        **plain,
        **more,
    )


def tokenizer():
    copied = copy.deepcopy(VOCABULARY.tokenizer)
    copied.pad_token, copied.eos_token = "<pad>", "<end>"
    return copied


def episode(model, url, task, max_steps=2):
    """One episode of `model` in the dream, as TRL's rollout function returns it: tokens, and a mask over
    those read.
    """
    with GenericEnvClient(base_url=url).sync() as env:
        env.reset(task_id=task.id)
        prompt, completion, logprobs, mask, reward = (
            AGENT.opening(task) + AGENT.ask(task),
            [],
            [],
            [],
            0.0,
        )
        for _ in range(max_steps):
            ids = torch.tensor([prompt + completion])
            with torch.no_grad():
                out = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=True,
                    max_new_tokens=24,
                    eos_token_id=STOP,
                    pad_token_id=STOP,
                    top_k=0,
                    top_p=1.0,
                    output_logits=True,
                    return_dict_in_generate=True,
                )
            written = out.sequences[0, ids.shape[1] :].tolist()
            logprobs += [
                float(row[0].log_softmax(-1)[token]) for row, token in zip(out.logits, written, strict=True)
            ]
            completion, mask = completion + written, mask + [1] * len(written)
            result = env.step({"action": AGENT.parse(written)[1]})
            reward += result.reward
            if result.done:
                break
            read = AGENT.observation(result.observation["state"]) + AGENT.ask(task)
            completion, mask, logprobs = (
                completion + read,
                mask + [0] * len(read),
                logprobs + [0.0] * len(read),
            )
        return prompt, completion, logprobs, mask, reward


def chance(model, task, action):
    """Log-probability of the whole reply with `action` in the first turn."""
    prompt, reply = (
        AGENT.opening(task) + AGENT.ask(task),
        VOCABULARY.encode(["works", ACTION, action, END]),
    )
    with torch.no_grad():
        logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return float(logits.gather(1, torch.tensor(reply)[:, None]).sum())


def test_grpo_learns_in_the_dream_by_a_rollout_function(cloned, dream, two_ways, tmp_path):
    task, rewards = two_ways[0].task, []
    model = copy.deepcopy(cloned)
    with serving(dream, two_ways, rows=2, steps=1) as url:

        def rollouts(prompts, trainer):
            played = [episode(trainer.model, url, task) for _ in prompts]
            rewards.append([reward for *_, reward in played])
            keys = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "outcome")
            return dict(zip(keys, map(list, zip(*played, strict=True)), strict=True))

        trainer = GRPOTrainer(
            model,
            lambda completions, outcome, **_: outcome,
            arguments(tmp_path, 1e-3),
            Dataset.from_list([{"prompt": task.id}] * GROUP),
            processing_class=tokenizer(),
            rollout_func=rollouts,
        )
        trainer.train()
    assert len(rewards) == STEPS and all(len(group) == GROUP for group in rewards)
    print(rewards, preference(cloned, task), preference(model, task))
    assert {value for group in rewards for value in group} == {0.0, 1.0}
    assert preference(model, task) > preference(cloned, task) + 0.1


def preference(model, task):
    """How much likelier, in nats, the right action is than the wrong one in the first turn."""
    return chance(model, task, RIGHT) - chance(model, task, WRONG)


class DreamTool:
    """The environment of docs/guides/serve.md, whose method the model calls as a tool."""

    url = ""

    def __init__(self):
        self.env, self.reward, self.seen = GenericEnvClient(base_url=self.url).sync(), 0.0, []

    def reset(self, task_id, **columns):
        self.reward = 0.0
        observation = self.env.reset(task_id=task_id).observation
        return f"{observation['instruction']}\n{observation['state']}"

    def act(self, action: str) -> str:
        """Do something in the world.

        Args:
            action: One command, such as go to desk 1.

        Returns:
            What is seen afterwards.
        """
        result = self.env.step({"action": action})
        if result.metadata.keys() & {"unparsable", "failed"}:
            self.reward = None
        elif self.reward is not None:
            self.reward += result.reward
        self.seen.append((action, result.observation["state"]))
        return result.observation["state"]

    def get_reward(self) -> float | None:
        return self.reward


def test_an_episode_without_an_answer_has_no_reward(two_ways):
    """None means no verdict for TRL; 0 would teach the policy to avoid what the dream cannot answer."""
    wordless = ExperienceModel(
        make_model(hidden=32, seed=9), VOCABULARY, ExperienceModelConfig(max_new_tokens=8)
    )
    with serving(wordless, two_ways, rows=1) as url:
        DreamTool.url = url
        tool = DreamTool()
        tool.reset(two_ways[0].task.id)
        tool.act(RIGHT)
        assert tool.get_reward() is None
        tool.reset(two_ways[0].task.id)
        assert tool.get_reward() == 0.0
        tool.env.close()


def conversation(task, action, state):
    """A conversation in which the model calls the tool with `action`."""
    call = {"type": "function", "function": {"name": "act", "arguments": {"action": action}}}
    request, tool_answer = (
        {"role": "user", "content": f"{task.instruction}\n{task.initial_state}"},
        {"role": "tool", "name": "act", "content": state},
    )
    return [
        request,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        tool_answer,
        {"role": "assistant", "content": "Done."},
    ]


@pytest.fixture(scope="module")
def caller(two_ways):
    """A tiny model with Qwen's chat template that has learnt to call the tool, with both actions equally
    often.
    """
    template = Path(trl.__file__).with_name("chat_templates").joinpath("qwen3.jinja").read_text()
    special = ["<|im_start|>", "<|im_end|>", "<|pad|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer, bare.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator([template, str(get_json_schema(DreamTool.act))] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=template
    )
    task = two_ways[0].task
    texts = [
        conversation(task, step.action, step.next_state) for episode in two_ways for step in episode.steps
    ]
    tools = [get_json_schema(DreamTool.act)]
    ids = [
        tokenizer.apply_chat_template(text, tools=tools, tokenize=True, return_dict=False) for text in texts
    ]
    torch.manual_seed(0)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 2048,
    }
    ends = {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape, **ends))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(150):
        loss = sum(model(torch.tensor([row]), labels=torch.tensor([row])).loss for row in ids)
        loss.backward()
        optimizer.step(), optimizer.zero_grad()
    return model, tokenizer


def test_grpo_steps_in_the_dream_by_tool_calls(caller, dream, two_ways, tmp_path):
    model, tokenizer = caller
    before = copy.deepcopy(model.state_dict())
    with serving(dream, two_ways, rows=GROUP + 1, steps=3) as url:
        DreamTool.url = url
        rows = Dataset.from_list(
            [{"prompt": [{"role": "user", "content": ""}], "task_id": two_ways[0].task.id}] * GROUP
        )
        args = arguments(tmp_path, 2e-4, max_completion_length=160, max_tool_calling_iterations=1)
        trainer = GRPOTrainer(
            model, args=args, train_dataset=rows, processing_class=tokenizer, environment_factory=DreamTool
        )
        trainer.train()
        tried = [pair for env in trainer._environment_pool[None] for pair in env.seen]
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print(rewards, Counter(action for action, _ in tried))
    assert len(rewards) == STEPS and 0 < sum(rewards) < STEPS
    assert (RIGHT, two_ways[0].steps[0].next_state) in tried and {RIGHT, WRONG} <= {
        action for action, _ in tried
    }
    assert any(not torch.equal(before[name], weight) for name, weight in model.state_dict().items())
