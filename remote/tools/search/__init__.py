"""The tools Glob and Grep, and the search program that does their work (`program`, started by `run_program`)."""
