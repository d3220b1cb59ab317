"""The planner: which split, parallelism, staleness bound, concurrency and policy for so many GPUs.

`space` lists what is possible, `estimate` bounds and estimates all of it in closed form, `search` simulates
what is left, `uncertainty` says how far the result may be off, `planning` puts them together.
"""
