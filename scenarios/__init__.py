"""Data only: hardware, models, decode fits and the scenarios of published experiments, as TOML."""
