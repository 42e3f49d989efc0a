"""Typed, frozen configuration. Hydra and OmegaConf live here and nowhere else."""
