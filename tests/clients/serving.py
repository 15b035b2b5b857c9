"""Starts `lily serve` with the demo model, and ends it as a user would."""

import queue
import re
import signal
import subprocess
import sys
import threading

from environments import ROOT, fail

START_LIMIT_S = 120
STOP_LIMIT_S = 30


def start(binary, arguments):
    """Starts the server on a free port; returns the process and its address."""
    command = [str(binary), "serve", "--host", "127.0.0.1", "--port", "0", "--log", "warn", *arguments]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = queue.Queue()

    def copy():
        for line in server.stderr:
            sys.stderr.write(line)
            lines.put(line)
        lines.put(None)

    threading.Thread(target=copy, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=START_LIMIT_S)
        except queue.Empty:
            server.kill()
            fail(f"no `listening on` within {START_LIMIT_S} s", f"run `{' '.join(command)}` by hand")
        if line is None:
            fail(f"the server ended with {server.wait()} before it listened", f"run `{' '.join(command)}` by hand")
        if match := re.search(r"listening on (http://[\w.:\[\]]+)", line):
            return server, match.group(1)


def stop(server):
    """SIGINT must end the server with status 0."""
    server.send_signal(signal.SIGINT)
    try:
        status = server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        print(f"clients: the server did not end within {STOP_LIMIT_S} s of SIGINT")
        return False
    if status != 0:
        print(f"clients: the server ended with {status} after SIGINT, not with 0")
    return status == 0
