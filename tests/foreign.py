"""Tiny checkpoints of other architectures on disk, each with a real fast tokenizer, for backbone.path."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

TEXTS = [
    f"You put mug {number} in cabinet {number % 7}. Nothing happens at desk {number % 5}."
    for number in range(40)
]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help. {{ strftime_now('%d %b %Y') "
    "}}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] | trim "
    "}}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
GROUPED = {**SHAPE, "num_key_value_heads": 2, "head_dim": 8}
OLD = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
SHAPES = {
    "llama": GROUPED,
    "qwen2": {**SHAPE, "num_key_value_heads": 2},
    "qwen3": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 512},
    "gemma": GROUPED,
    "gpt_neox": SHAPE,
    "gpt2": OLD,
    "phi3": {**SHAPE, "num_key_value_heads": 2},
    "phi": SHAPE,
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "qwen3_next": {
        **GROUPED,
        **{"layer_types": ["linear_attention", "full_attention"], "num_experts": 4, "num_experts_per_tok": 2},
        **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8},
        **{"linear_value_head_dim": 8, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 512},
    "gemma2": GROUPED,
    "gemma3_text": {
        **GROUPED,
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 8,
    },
    "gpt_oss": {
        **GROUPED,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 512,
        "layer_types": ["full_attention", "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "gpt_neox_japanese": {
        **{name: value for name, value in SHAPE.items() if name != "intermediate_size"},
        "intermediate_multiple_size": 2,
    },
}


def make_checkpoint(directory, kind: str, *, template: str = "", scale: float = 4.0, **changes):
    """Write a random model of architecture `kind` and its tokenizer to `directory`.

    Its weights are multiplied by `scale`, so that the logits of its choices differ clearly.
    """
    directory.mkdir(parents=True, exist_ok=True)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIALS, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=SPECIALS[0], pad_token=SPECIALS[0]
    )
    tokenizer.chat_template = template or None
    tokenizer.save_pretrained(directory)
    ids = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    AutoConfig.for_model(kind, **ids).save_pretrained(directory)
    size = len(AutoTokenizer.from_pretrained(directory))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, vocab_size=size, **ids, **{**SHAPES[kind], **changes})
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)
    model.save_pretrained(directory)
    return directory
