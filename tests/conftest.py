"""Hypothesis for all tests: the same examples every time, and no deadline, since timings are noisy."""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
