"""`docs/learning.md`: a head that says what is the same in all its measurements, and a section for each."""

import re
from pathlib import Path

HEAD = """# Learning from old rollouts

Written by `benchmarks/learning_under_staleness.py` and `benchmarks/learning_on_the_engine.py`; every number is computed
by them.

The letter chain ([areal_real/tasks/letter_chain.py](../areal_real/tasks/letter_chain.py)) on its XS model (86 k
parameters): 32 prompts x 8 rollouts a step, GRPO, 4 minibatches, clip 0.2, AdamW with learning rate 3e-4. Accuracy: 256
held-out prompts, sampled at temperature 1; its standard error is about 0.03.

**What may be read from it**: an effect on the *speed* of learning, on one small task, from a cold start. Nothing here
says where the curves end, or that the effect is as large elsewhere.
"""


def replace_section(path: Path, heading: str, text: str) -> None:
    """Write one section of the page, and leave the others as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = dict(re.findall(r"^## (.*?)\n\n(.*?)\n*(?=^## |\Z)", old, re.M | re.S))
    sections[heading] = text.strip()
    body = "".join(f"\n## {name}\n\n{words}\n" for name, words in sorted(sections.items()))
    path.write_text(HEAD + body, encoding="utf-8")
