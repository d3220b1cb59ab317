"""The published versions: found, checked against the model before use, and loaded."""

import asyncio
import logging
from pathlib import Path

from areal_real.engine.config import EngineConfig
from areal_real.engine.live import LiveEngine
from areal_real.weight_file import (
    Manifest,
    check_bytes,
    check_fits,
    read_manifest,
    read_model,
    weights_path,
)
from interfaces.rollout import PolicyVersion

LOG = logging.getLogger(__name__)


class Shelf:
    """Weights that one replica may load, and the checksums of those it did."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._model = Manifest(None, "", {}, 0)
        self.loaded: dict[PolicyVersion, str] = {}
        """Checksum of what went into the engine, by version."""

    async def open(self) -> None:
        """Read what tensors the model has.

        Raises:
            WeightFileError: the model directory holds none.
        """
        self._model = await asyncio.to_thread(read_model, self._config.model)

    def path(self, version: PolicyVersion) -> Path:
        """Where a version is published."""
        return weights_path(self._config.weights, version)

    async def checked(self, path: Path, version: PolicyVersion) -> Manifest:
        """Check everything about a file while generation goes on: version, names, shapes, size, bytes.

        Raises:
            WeightFileError: it must not be loaded.
        """
        return await asyncio.to_thread(self._check, path, version)

    def _check(self, path: Path, version: PolicyVersion) -> Manifest:
        manifest = read_manifest(path)
        check_fits(path, manifest, self._model, version)
        check_bytes(path, manifest)
        return manifest

    async def install(
        self, engine: LiveEngine, path: Path, manifest: Manifest, version: PolicyVersion
    ) -> None:
        """Load into a paused engine, and keep the checksum of what arrived."""
        checksum = await engine.update(self._config.transfer, path, manifest, version)
        self.loaded[version] = checksum
        LOG.info("version %d loaded from %s, checksum %s", version, path, checksum)
