#!/usr/bin/env python3
"""What a newcomer does with the release binary, checked: chat, pipe, wrong flags, fresh weights.

  user_checks.py [--lily target/release/lily]

Needs Python 3.9 and, for the fresh random checkpoint, numpy (installed into target/numpy-venv).
Prints one line per check and exits non-zero if any failed.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
VENV = ROOT / "target" / "numpy-venv"
results = []


def check(name):
    def wrap(function):
        start = time.monotonic()
        try:
            note = function() or ""
            ok = True
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
            note, ok = f"{type(error).__name__}: {error}", False
        results.append(ok)
        print(f"{'ok  ' if ok else 'FAIL'} {name} ({time.monotonic() - start:.1f} s) {note}", flush=True)
        return function
    return wrap


def lily(*args, stdin="", timeout=120, env=None):
    return subprocess.run([str(LILY), *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})})


def answer(*args, stdin=""):
    run = lily("chat", *args, "--json", "--temp", "0", stdin=stdin)
    assert run.returncode == 0, f"exit {run.returncode}: {run.stderr[-500:]}"
    return json.loads(run.stdout)


def filler(n_words, seed):
    """Plain prose-like text that the demo model was not trained on."""
    rng = random.Random(seed)
    topics = ["river", "harbour", "teacher", "orchard", "engine", "letter", "market", "window", "winter", "captain"]
    verbs = ["crossed", "watched", "repaired", "forgot", "painted", "counted", "followed", "described"]
    places = ["near the old bridge", "before the storm", "in the northern valley", "after a long night",
              "beside the railway", "under a grey sky"]
    words = []
    while len(words) < n_words:
        words += f"The {rng.choice(topics)} {rng.choice(verbs)} the {rng.choice(topics)} {rng.choice(places)}.".split()
    return words


def main():
    global LILY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lily", default=ROOT / "target" / "release" / "lily", type=pathlib.Path)
    LILY = parser.parse_args().lily.resolve()
    if not LILY.exists():
        sys.exit(f"error: {LILY} is missing; build it with `cargo build --release`")
    demo_checks()
    command_line_checks()
    fresh_checkpoints()
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def demo_checks():
    @check("the binary is at most 60 MB")
    def _():
        size = LILY.stat().st_size
        assert size <= 60_000_000, f"{size} bytes"
        return f"{size / 1e6:.1f} MB"

    @check("the demo says what it is and how to load the real model")
    def _():
        reply = answer("What are you, and how do I load the real model?")
        text = reply["content"]
        assert "Lily" in text and "-m" in text, text
        return repr(text[:120])

    @check("without thinking too")
    def _():
        reply = answer("What are you, and how do I load the real model?", "--think", "off")
        text = reply["content"]
        assert "Lily" in text and "-m" in text and not reply.get("reasoning"), reply
        return repr(text[:120])

    @check("it finds a needle in a long piped text")
    def _():
        found = []
        for seed, depth in [(1, 0.2), (2, 0.5), (3, 0.8)]:
            words = filler(900, seed)
            code = str(random.Random(seed).randint(1000, 9999))
            words[int(len(words) * depth):0] = []
            at = next(i for i in range(int(len(words) * depth), len(words)) if words[i].endswith(".")) + 1
            words[at:at] = f"The secret code is {code}.".split()
            reply = answer("What is the secret code?", stdin=" ".join(words))
            found.append(code in reply["content"])
        # The issue of a tiny model: nine in ten. Two of three is the bar here; the scored set is
        # in tools/demo-model.
        assert sum(found) >= 2, found
        return f"{sum(found)} of {len(found)}"

    @check("the first token comes within a second of the command")
    def _():
        times = []
        for _ in range(3):
            start = time.monotonic()
            process = subprocess.Popen([str(LILY), "chat", "Hello!", "--think", "off"], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            assert process.stdout.read(1), "no output"
            times.append(time.monotonic() - start)
            process.stdout.read()
            assert process.wait(60) == 0
        assert min(times) <= 1.0, times
        return f"{min(times):.2f} s"

    @check("the same seed gives the same answer")
    def _():
        runs = [lily("chat", "Hello!", "--temp", "1", "--seed", "5").stdout for _ in range(2)]
        assert runs[0] and runs[0] == runs[1], runs


def command_line_checks():
    @check("wrong flags exit with 2, failures with 1, and say what to do")
    def _():
        assert lily("chat", "--no-such-flag").returncode == 2
        assert lily("no-such-verb").returncode == 2
        missing = lily("chat", "hi", "-m", "/no/such/model")
        assert missing.returncode == 1 and "/no/such/model" in missing.stderr, missing.stderr
        for device in ("metal", "cuda"):
            run = lily("chat", "hi", "--device", device)
            assert run.returncode == 1 and "cpu" in run.stderr, run.stderr
        with tempfile.TemporaryDirectory() as empty:
            run = lily("inspect", "-m", empty)
            assert run.returncode == 1 and "config.json" in run.stderr, run.stderr

    @check("inspect and doctor print JSON")
    def _():
        for verb in ("inspect", "doctor"):
            run = lily(verb, "--json")
            assert run.returncode == 0, run.stderr
            json.loads(run.stdout)

    @check("a reader that goes away is no failure")
    def _():
        process = subprocess.Popen([str(LILY), "chat", "Tell me about Lily."], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == 0, process.stderr.read()

    @check("Ctrl-C ends the server cleanly")
    def _():
        process = subprocess.Popen([str(LILY), "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if "listening on" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        process.stderr.close()

    @check("a full disk is reported, and nothing half-written stays")
    def _():
        if not pathlib.Path("/dev/full").exists():
            return "no /dev/full on this system"
        run = lily("eval", "logits", "-m", "demo", "--ids", "1,2,3", "--out", "/dev/full/x")
        assert run.returncode == 1 and run.stderr, run


def fresh_checkpoints():
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        try:
            subprocess.run([str(python), "-m", "pip", "install", "-q", "numpy"], check=True)
        except subprocess.CalledProcessError:
            sys.exit("error: numpy could not be installed into target/numpy-venv; check pip and the network")

    for variant in ("small", "heads"):
        for kind, tolerance in (("hf", 2e-4), ("mlx4", 5e-4)):
            @check(f"a fresh random checkpoint ({variant}, {kind}) agrees with the float64 oracle")
            def _(variant=variant, kind=kind, tolerance=tolerance):
                seed = random.SystemRandom().getrandbits(32)
                with tempfile.TemporaryDirectory() as directory:
                    run = subprocess.run([str(python), str(GOLDEN / "fresh.py"), str(LILY), directory, variant, kind,
                                          str(seed)], capture_output=True, text=True, timeout=300)
                assert run.returncode == 0, f"seed {seed}: {run.stderr[-600:]}"
                difference = json.loads(run.stdout)["max_difference"]
                assert difference <= tolerance, f"seed {seed}: {difference}"
                return f"seed {seed}, max difference {difference:.1e}"


if __name__ == "__main__":
    main()
