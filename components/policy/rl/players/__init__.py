"""Who plays the rollouts of an iteration, and what corrects for players that are not the trained policy."""
