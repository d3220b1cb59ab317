"""Counterfactual replay: what would have happened to a recorded run under another policy or split."""
