"""The contracts of `interfaces/` on real vLLM engines and a PyTorch trainer, under asyncio.

Torch and vLLM are imported by the modules that use them, never by this package itself.
"""
