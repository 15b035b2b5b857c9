#!/usr/bin/env python3
"""What streaming costs the server, and whether many idle and slow clients disturb one that reads.

    cargo build --release -p lily-server --example scripted
    tests/api/load.py [--server target/release/examples/scripted] [--seconds 6]

The model is scripted: one token every 2 ms, so that all the time that passes is the server's. One client reads its
stream; the processor time of the server is taken from /proc. Then 500 clients wait for their turn and 200 read
nothing of answers that are complete; the first client's rate and text are compared with those before. Bounds: 5 % of
a core at 500 tokens/s, and 5 % of the rate. Linux only; needs 800 file descriptors.
"""

import argparse
import asyncio
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACE_US = 2000
TEXT = "The quick brown fox jumps over the lazy dog. "
IDLE, SLOW = 500, 200
ROUNDS = 5
RULES = {
    "model": "paced",
    "rules": [
        {"has": ["MEASURED"], "answer": TEXT, "endless": True, "pace_us": PACE_US},
        {"has": ["SLOW"], "answer": TEXT * 20},
        {"answer": TEXT},
    ],
}


def cpu_s(pid):
    """Processor time of the threads that serve connections; the engine's thread stands for the model."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name, fields = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except FileNotFoundError:
            # A thread for blocking work that ended.
            continue
        if name != "lily-engine":
            fields = fields.split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def request(word, **fields):
    body = {"messages": [{"role": "user", "content": word}], "stream": True, "enable_thinking": False, **fields}
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


async def connect(port, word, limit=2**16, **fields):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    writer.write(request(word, **fields))
    await writer.drain()
    return reader, writer


class Measured:
    """A client that reads everything and notes when each piece came."""

    def __init__(self):
        self.text, self.times = [], []

    async def read(self, port):
        reader, self.writer = await connect(port, "MEASURED")
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            piece = choices[0]["delta"].get("content") if choices else None
            if piece:
                self.text.append(piece)
                self.times.append(time.monotonic())

    def rate(self, start, end):
        return sum(len(t) for t, at in zip(self.text, self.times) if start <= at < end) / (end - start)


async def measure(port, pid, seconds):
    # Complete answers that nobody reads: 200 sockets with data waiting.
    slow = [await connect(port, "SLOW") for _ in range(SLOW)]
    for reader, _ in slow:
        await reader.readline()
        reader._transport.pause_reading()
    measured = Measured()
    task = asyncio.create_task(measured.read(port))
    while not measured.text:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)

    async def window():
        start, cpu = time.monotonic(), cpu_s(pid)
        await asyncio.sleep(seconds)
        end = time.monotonic()
        return measured.rate(start, end), (cpu_s(pid) - cpu) / (end - start)

    rate, cpu = await window()
    idle = [await connect(port, "IDLE") for _ in range(IDLE)]
    await asyncio.sleep(2)
    crowded_rate, crowded_cpu = await window()
    task.cancel()
    text = "".join(measured.text)
    assert (TEXT * (len(text) // len(TEXT) + 1)).startswith(text), "the text of the measured client changed"
    for _, writer in slow + idle:
        writer.close()
    return rate, cpu, crowded_rate, crowded_cpu


def faults(rate, cpu, crowded_rate, crowded_cpu):
    # A token is a byte here. Sleeping 2 ms takes a little longer than that.
    per_500 = cpu / rate * 500
    print(f"alone: {rate:.0f} tokens/s, {cpu:.1%} of a core, so {per_500:.1%} at 500 tokens/s")
    print(f"beside {IDLE} idle and {SLOW} slow: {crowded_rate:.0f} tokens/s, {crowded_cpu:.1%} of a core")
    if per_500 > 0.05:
        yield "streaming costs more than 5 % of a core at 500 tokens/s"
    if crowded_rate < 0.95 * rate:
        yield "idle and slow clients slow another one by more than 5 %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", default=ROOT / "target" / "release" / "examples" / "scripted", type=pathlib.Path)
    parser.add_argument("--seconds", default=6.0, type=float)
    arguments = parser.parse_args()
    if not arguments.server.exists():
        sys.exit(f"load: {arguments.server} is missing\n  remedy: cargo build --release -p lily-server --example scripted")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    # Another process can take the core away at any time; a fault of the server shows every time.
    for _ in range(ROUNDS):
        found = list(faults(*one_round(arguments)))
        if not found:
            return
    sys.exit(f"load: {'; '.join(found)}\n  remedy: profile the server, if nothing else runs here")


def one_round(arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as script:
        json.dump(RULES, script)
        script.flush()
        command = [arguments.server, "--script", script.name, "--port", "0"]
        quiet = {**os.environ, "RUST_LOG": "warn"}
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=quiet
        )
        try:
            port = int(json.loads(server.stdout.readline())["url"].rsplit(":", 1)[1])
            return asyncio.run(measure(port, server.pid, arguments.seconds))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
