"""The endpoints beside chat completions: models, health, metrics, what is relayed, and what is refused."""
