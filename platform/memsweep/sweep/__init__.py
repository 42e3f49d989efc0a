"""Plans, runs and stores the trials of a study. Ray is imported in ``sweep.ray``, MLflow in ``sweep.tracking``.

One writer per thing: a worker writes its own results; the driver alone writes plan and journal and calls MLflow.
"""
