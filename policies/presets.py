"""The presets of a policy: better defaults for one purpose each; they know no files and no models."""

PRESETS: dict[str, dict[str, object]] = {
    "voice": {
        "strategy": "context_window",
        "max_tokens": 4000,
        "max_context_items": 20,
        "keep_recent_turns": 3,
        "max_tool_calls_per_turn": 10,
    },
    "chat": {
        "strategy": "context_window",
        "max_tokens": "auto",
        "keep_verbatim": "fill",
        "trim_to": 0.5,
        "keep_recent_iterations": 2,
        "max_tool_calls_per_turn": 100,
    },
    "agent": {
        "strategy": ("clear_tool_results", "compress", "truncate"),
        "max_tokens": "auto",
        "keep_verbatim": "fill",
        "keep_first_turns": 1,
        "trim_to": 0.5,
        "keep_recent_iterations": 2,
        "max_tool_calls_per_turn": None,
        "max_repeated_tool_calls": 8,
    },
    "recall": {
        "strategy": ("compress", "truncate", "recall"),
        "max_tokens": "auto",
        "keep_verbatim": "fill",
        "trim_to": 0.5,
        "keep_recent_iterations": 2,
        "max_tool_calls_per_turn": 100,
    },
}
