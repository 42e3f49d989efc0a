"""Runs a plan: hands out packs, finds culprits, writes the journal, shows progress.

When a pack fails, its members run again alone, so that only the culprit fails. A trial that has died three times has
failed, and is not tried again by itself.
"""
