"""The five decisions of a scheduling policy, their protocols, and the named systems built from them."""
