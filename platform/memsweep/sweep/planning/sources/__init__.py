"""The code of a trial: which definitions make its numbers, and what of their text can change one."""
