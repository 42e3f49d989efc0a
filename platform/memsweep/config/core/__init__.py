"""From plain data to frozen dataclasses: fields, types, limits, and all problems at once."""
