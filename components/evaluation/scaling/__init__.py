"""A simulator of the RL loop on more devices, fitted to the times that a run measured."""
