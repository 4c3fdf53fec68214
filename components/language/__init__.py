"""Language models: backbones, tokenizer, fine-tuning with LoRA, batched generation with a kept cache."""
