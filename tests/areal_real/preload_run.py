"""Imported once by the process that all runs of a test are forked from."""

import json
import tempfile
import warnings
from pathlib import Path

with warnings.catch_warnings(), tempfile.TemporaryDirectory() as model:
    warnings.simplefilter("ignore")
    from areal_real.engine.cpu import set_environment

    set_environment()
    import areal_real.run  # noqa: F401
    from areal_real.engine.launch import import_vllm

    (Path(model) / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"]}))
    import_vllm(Path(model))
