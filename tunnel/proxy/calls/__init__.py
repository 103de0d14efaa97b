"""Model calls: the answer of each until the worker has it (`call`, `registry`), what a front gets of it (`response`),
and what reads it as it comes (`intake`, `answer_reader`).
"""
