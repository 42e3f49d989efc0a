"""Units beside what the engine takes them for: before a study those of others, and all of them in their suites."""
