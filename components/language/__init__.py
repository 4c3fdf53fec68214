"""Backbones, tokenizer, supervised fine-tuning with LoRA, and batched generation with a kept cache."""
