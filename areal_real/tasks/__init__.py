"""Tasks: prompts, a tokenizer and a reward, found by name or as `module:object`."""
