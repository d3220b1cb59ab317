"""Published measurements against predictions, under a protocol that fixes what may be fitted."""
