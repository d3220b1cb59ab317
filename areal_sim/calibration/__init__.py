"""Fits cost models to measured times: profiles, traces of runs, tables."""
