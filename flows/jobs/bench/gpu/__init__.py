"""The measurements of `dreamgym bench gpu`: training, RL updates, rollouts, and what they should reach."""
