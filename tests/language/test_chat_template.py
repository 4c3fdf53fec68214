"""Chat templates: prompts are what the template renders, forge nothing, and only ever grow."""

from __future__ import annotations

import pytest
from builders import VOCABULARY, make_episode, make_task

from components.errors import ConfigError
from components.experience import prompts as experience
from components.language.backbone import load_backbone, save_model
from components.language.chat_template import DATE
from components.language.markers import ANSWER, FRAMES, OPENING, RESUME, TASK
from components.language.tokenizer import Vocabulary
from components.policy import agent_prompt as policy
from language.foreign import CHATML, make_checkpoint

LLAMA = (
    "{{ bos_token }}{% if date_string is not defined %}{% set date_string = strftime_now('%d %b') %}{% "
    "endif %}"
    "{{ '<|start|>system\\nToday: ' + date_string + '<|eot|>' }}"
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '\\n' + m['content'] | trim + '<|eot|>' }}{% "
    "endfor %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + "
    "'[/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'] + eos_token }}"
    "{% else %}{{ raise_exception('roles!') }}{% endif %}{% endfor %}"
)
EPISODE = make_episode(
    make_task(), ("go to desk 1", "At desk 1: mug 1."), ("take mug 1", "Took mug 1."), won=True
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    def make(template):
        return make_checkpoint(tmp_path_factory.mktemp("chat"), "llama", template=template)

    return make


def spelled(vocabulary, pieces):
    """The tokens of `pieces` as one text, specials shown, without the added spaces."""
    return vocabulary.tokenizer.decode(vocabulary.encode(pieces)).replace("\n ", "\n").replace(" ", "")


@pytest.mark.parametrize("template", [CHATML, LLAMA, MISTRAL], ids=["chatml", "llama", "mistral"])
def test_frames_and_texts_give_what_the_template_renders(checkpoint, template):
    vocabulary = Vocabulary.load(checkpoint(template))
    texts = ["put mug 1", "go to desk 1", "At desk 1", "take mug 1", "Took mug 1"]
    pieces = [OPENING, texts[0], ANSWER, texts[1], RESUME, texts[2], ANSWER, texts[3], RESUME, texts[4]]
    roles = ["user", "assistant"] * 3
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    dated = template.replace("strftime_now('%d %b %Y')", f"'{DATE}'")
    whole = vocabulary.tokenizer.apply_chat_template(
        messages, chat_template=dated, tokenize=False, date_string=DATE
    )
    ours = spelled(vocabulary, pieces)
    assert whole.replace(" ", "").startswith(ours) and whole.replace(" ", "").removeprefix(ours) in (
        "<|im_end|>\n",
        "<|eot|>",
        "[/INST]",
    )


def test_specials_of_the_template_are_tokens_and_the_same_letters_in_a_page_are_not(checkpoint):
    vocabulary = Vocabulary.load(checkpoint(CHATML))
    start = vocabulary.tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert vocabulary.encode([OPENING]).count(start) == 2  # the template's own system prompt, and the user
    assert vocabulary.encode([ANSWER]).count(start) == vocabulary.encode([RESUME]).count(start) == 1
    assert start not in vocabulary.encode(["the page says <|im_start|>assistant"])


def test_a_model_without_a_template_has_no_frames(checkpoint):
    assert VOCABULARY.encode(FRAMES) == [] == Vocabulary.load(checkpoint("")).encode(FRAMES)
    assert VOCABULARY.encode([OPENING, TASK, "put mug"]) == VOCABULARY.encode([TASK, "put mug"])


def test_a_token_that_the_tokenizer_puts_before_every_text_stands_before_ours(tmp_path):
    from tokenizers import processors

    base = make_checkpoint(tmp_path, "llama")
    tokenizer = Vocabulary.load(base).tokenizer
    tokenizer.bos_token = "<|im_start|>"
    index, first = tokenizer.bos_token_id, "<|im_start|>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A", special_tokens=[(first, index)]
    )
    assert Vocabulary(tokenizer).encode([OPENING, TASK])[0] == index
    assert Vocabulary(tokenizer).encode([ANSWER, RESUME]) == []


def test_off_takes_the_template_away_for_good(checkpoint, tmp_path):
    model, vocabulary = load_backbone(checkpoint(CHATML), chat_template="off")
    assert vocabulary.encode(FRAMES) == [] and not vocabulary.has_chat_template
    save_model(model, vocabulary, tmp_path / "saved")
    assert not load_backbone(tmp_path / "saved")[1].has_chat_template
    model, vocabulary = load_backbone(checkpoint(CHATML))
    save_model(model, vocabulary, tmp_path / "saved")
    assert load_backbone(tmp_path / "saved")[1].encode(FRAMES) == vocabulary.encode(FRAMES) != []


def test_the_experience_models_prompt_is_one_message_whose_beginning_only_grows(checkpoint):
    vocabulary = Vocabulary.load(checkpoint(CHATML))
    example = experience.render_trajectory(vocabulary, EPISODE, [[], []])
    opened, answered = vocabulary.encode([OPENING]), vocabulary.encode([ANSWER])
    trunk = [token for segment in example.segments if not segment.branch for token in segment.tokens]
    assert trunk[: len(opened)] == opened and not contains(trunk, answered)
    for segment in (s for s in example.segments if s.branch):
        asked = segment.tokens[: segment.loss.index(True)]
        assert asked[-len(answered) :] == answered and not any(segment.loss[: len(asked)])
        assert segment.tokens[len(asked)] == vocabulary.marker_id("<think>")


def test_the_policys_replies_are_the_assistants_messages(checkpoint):
    vocabulary = Vocabulary.load(checkpoint(CHATML))
    example = policy.render_demonstration(vocabulary, EPISODE, ["find mug", "take it"])
    tokens = [token for segment in example.segments for token in segment.tokens]
    text = vocabulary.tokenizer.decode(tokens)
    assert (
        text.count("<|im_start|>assistant") == 2
        and text.count("<|im_start|>user") == 3
        and text.count("<|im_end|>") == 5
    )
    wanted = [segment for segment in example.segments if any(segment.loss)]
    assert all(segment.tokens[-1] == vocabulary.marker_id("<end>") for segment in wanted)
    assert not any("<|im" in vocabulary.tokenizer.decode(segment.tokens) for segment in wanted)


def contains(tokens, part):
    return any(tokens[place : place + len(part)] == part for place in range(len(tokens)))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('only tools') }}", "fails with TemplateError: only tools"),
        ("{{ messages[-1]['content'] }}", "renders a question, a reply and a question as 'second-question'"),
        ("{% for m in messages %}{{ m['content'] + m['content'] }}{% endfor %}", "renders"),
    ],
)
def test_a_template_that_cannot_be_taken_apart_is_refused(checkpoint, template, words):
    base = checkpoint(template)
    with pytest.raises(ConfigError, match=f"{words}.*chat_template=off"):
        Vocabulary.load(base)
    assert not Vocabulary.load(base, "off").has_chat_template
