"""Computes what a report says: findings, losses, rankings."""
