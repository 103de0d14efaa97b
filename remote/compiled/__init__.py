"""The compiled copy of the worker bundle on the host: it saves every later start from compiling the worker again."""
