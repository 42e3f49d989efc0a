"""The dataclasses of a study and of a trial, and their canonical form as plain data.

The canonical form is what is stored, hashed, sent to workers and compared. A protocol is a preset of fields under a
study's own settings.
"""
