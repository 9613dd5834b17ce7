"""What tests of several subjects share; pytest finds it through `pythonpath` in pyproject.toml."""
