"""Goes on with a study until its question is decided: rounds of trials that are chosen by the power of their own test.

A round follows from the stored tables alone. ``question`` says what is open and why, ``options`` what could be added,
``forecast`` what each addition would narrow, ``choice`` what the next round is, ``round_log`` writes it down before it
runs, and ``growing`` gives its trials to the run. No measured time chooses a round: an interrupted study takes the same
rounds as an undisturbed one. docs/decide.md has the rule of the rounds, docs/evidence/decide.md its measured error
rates.
"""
