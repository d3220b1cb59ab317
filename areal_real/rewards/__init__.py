"""Rewards: a pool of processes with time-outs, and the functions it can call."""
