"""Typed, frozen configuration. Hydra and OmegaConf are imported here and nowhere else.

Plain data become dataclasses in one pass, ``load.study.load_study``. Behind it no code sees a mapping of settings.
"""
