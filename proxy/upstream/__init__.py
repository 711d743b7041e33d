"""The models' side: one port, an adapter per way of reaching a model, and the headers that travel."""
