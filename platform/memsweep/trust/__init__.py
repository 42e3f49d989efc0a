"""Which code of others may run because a document names it.

A study file and a stored plan may name a callable by its path (``model.factory``). Everything else in them is data.
Each such name passes ``gate`` before anything of it is called, and a foreign one before anything is imported:

- What a person types is theirs: a factory on the command line, or in a dict that Python gives.
- A study of the workspace may name what a file of the workspace defines, and classes of modules of installed packages.
- Anything else needs the person's word (``--trust``), which is remembered by the hash of what would run.

Reading results (``status``, ``report``, ``weights``) needs no such name, and imports none.
"""
