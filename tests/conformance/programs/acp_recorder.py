"""Stands between an ACP client and its agent, and keeps every line of both: `acp_recorder.py FILE COMMAND…`."""

import json
import os
import subprocess
import sys
import threading

_, path, *command = sys.argv
agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def carry(source, target, who):
    while line := source.readline():
        entry = json.dumps({"by": who, "line": line.decode("utf-8", "surrogateescape")}) + "\n"
        os.write(record, entry.encode())  # before it is delivered: so no answer stands before its request
        try:
            target.write(line)
            target.flush()
        except BrokenPipeError:
            return
    target.close()


threading.Thread(target=carry, args=(sys.stdin.buffer, agent.stdin, "client"), daemon=True).start()
carry(agent.stdout, sys.stdout.buffer, "agent")
sys.exit(agent.wait())
