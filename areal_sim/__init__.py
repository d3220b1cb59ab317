"""The simulated backend: SimPy mechanisms and cost models under the decision core of `interfaces`."""
