"""The longest sequence that a model takes, and how messages describe it."""

from __future__ import annotations

from typing import Any

WINDOW_SETTINGS = {"sliding": "sliding_window", "chunked": "attention_chunk_size", "local": "window_size"}
"""The config's name for the width of each kind of windowed layer, in tokens."""


def longest_sequence(config: Any) -> int:
    """The longest sequence in tokens: the model's positions, or its narrowest attention window if smaller."""
    positions = int(getattr(config.get_text_config(), "max_position_embeddings", 0) or 1 << 30)
    return min(positions, window_of(config) or positions)


def window_of(config: Any) -> int:
    """How many tokens the narrowest layer attends to; 0 if every layer attends to all earlier tokens."""
    config = config.get_text_config()
    layers = list(getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or [])
    windows = [
        int(getattr(config, name, 0) or 0)
        for kind, name in WINDOW_SETTINGS.items()
        if any(kind in layer for layer in layers)
    ]
    if not layers:
        windows.append(int(getattr(config, "sliding_window", 0) or 0))
    return min((window for window in windows if window), default=0)


def limit_in_words(config: Any) -> str:
    """What bounds the model's longest sequence, for messages."""
    if _is_bound_by_window(config):
        return f"the window of {window_of(config)} tokens that some of its layers attend to"
    return f"max_position_embeddings of {longest_sequence(config)}"


def shorter_or_longer(config: Any) -> str:
    """What to do about a sequence that is too long for the model, for messages."""
    shorter = "Lower environment.max_steps or retrieval.k"
    if _is_bound_by_window(config):
        return (
            f"{shorter}, or take a model of a wider window (backbone.path): this one is bound by "
            f"{limit_in_words(config)}."
        )
    return (
        f"{shorter}, or take a backbone with longer sequences (backbone.max_positions of dreamgym "
        "pretrain, or backbone.path)."
    )


def _is_bound_by_window(config: Any) -> bool:
    return bool(window_of(config)) and longest_sequence(config) == window_of(config)
