"""How long a model takes and what it needs, on each backend that runs it here."""
