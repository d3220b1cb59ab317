"""Rollout engine: one vLLM `AsyncLLM` a replica, interrupted, reloaded and resumed."""
