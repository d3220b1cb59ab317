"""Contracts and decision core of the AReaL testbed: no I/O, no clock, no randomness."""
