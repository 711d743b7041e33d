"""The small endpoints beside chat completions: models, health, metrics, and what is refused with a sentence."""
