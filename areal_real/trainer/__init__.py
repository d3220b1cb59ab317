"""Trainer: packed micro-batches, pure losses, decoupled PPO, in a process of its own."""
