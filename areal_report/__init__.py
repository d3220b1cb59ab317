"""A run, a comparison or a sweep as one HTML page; the same for simulated and for real runs.

Reads what they wrote (`report.json`, `scenario.json`, `trace.jsonl.gz`, `sweep.csv`); knows neither backend.
"""
