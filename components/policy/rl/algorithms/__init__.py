"""The RL algorithms, one a module, over the one loop."""
