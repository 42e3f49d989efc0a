"""Recurrent models and their parameterizations. Each module here registers what it defines."""
