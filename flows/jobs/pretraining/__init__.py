"""Parts of `dreamgym pretrain`: corpus, training examples, exercises, training of a phase, model card."""
