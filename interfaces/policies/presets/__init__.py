"""Named systems as products of the five decisions, one file a family. Importing it registers them all."""

from interfaces.policies.presets.areal import Areal, ArealStrict, OneStepOff, Sync, SyncColocated

__all__ = ["Areal", "ArealStrict", "OneStepOff", "Sync", "SyncColocated"]
