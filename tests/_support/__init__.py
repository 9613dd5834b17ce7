"""Helpers shared by tests; pytest finds them through `pythonpath` in pyproject.toml."""
